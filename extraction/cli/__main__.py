"""`python -m pagemill.extraction.cli` is `pagemill`."""

from .main import main

if __name__ == "__main__":
    main()
