"""`python -m kfm` is the same as `kfm`."""

from kfm.cli import main

if __name__ == "__main__":
    main()
