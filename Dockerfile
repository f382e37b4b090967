# syntax=docker/dockerfile:1
# The command line in an image: without arguments it runs the demo, offline and without a key.
#
#   docker build --tag tradingagents-backtester .
#   docker run --rm --network none tradingagents-backtester
#   docker run --rm -it tradingagents-backtester analyze NVDA 2018-06-29 --benchmark ^GSPC
#
# The tests read this file and hold it to its rules; they do not build or run it.

# -- wheels of everything that is locked, each checked against its hash, and our own on top
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements.lock ./
RUN pip wheel --require-hashes --wheel-dir /wheels --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY backtester ./backtester
COPY tradingagents_core ./tradingagents_core
COPY data/snapshots/us-2013-2018 ./data/snapshots/us-2013-2018
COPY cassettes/smollm2-2018.jsonl.zst ./cassettes/smollm2-2018.jsonl.zst
RUN pip install --no-index --find-links /wheels hatchling \
    && pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels .

# -- what a run needs: no compiler, no test tools, no root
FROM python:3.11-slim-bookworm
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-index --find-links /wheels tradingagents-backtester \
    && useradd --create-home --uid 1000 trader \
    && install --directory --owner trader --group trader /app /app/data /app/reports
WORKDIR /app
USER trader
ENTRYPOINT ["backtester"]
CMD ["demo"]
