"""Queue, Stream, Event, Context, errors and the device protocols: nouns without a back end."""
