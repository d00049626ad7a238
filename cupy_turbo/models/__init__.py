"""Networks: configuration, weights, and the forward pass assembled from ops."""
