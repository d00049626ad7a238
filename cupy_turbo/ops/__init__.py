"""One thin launcher per kernel file: check the arguments, size the launch, launch.

Every operation is ``op(outputs…, inputs…, *, scalars…, stream) -> None`` in a module of its own name, for the kernel of
that name in ``kernels/``. It writes into arrays that the caller gives, allocates nothing, and returns before the device
has run it.
"""
