"""`python -m kfm_lint` is `kfm-lint`."""

import sys

from kfm_lint.command import main

sys.exit(main())
