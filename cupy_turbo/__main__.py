"""`python -m cupy_turbo` is `cupy-turbo`."""

import sys

from cupy_turbo.cli import main

sys.exit(main())
