"""`python -m pprgnn` is `pprgnn`; torchrun starts it so."""

from pprgnn.cli.main import run

if __name__ == "__main__":
    run()
