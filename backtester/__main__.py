"""``python -m backtester``: the command line, where no console script is installed."""

from backtester.cli import main

if __name__ == "__main__":
    main()
