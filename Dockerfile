# One image for the engine, the API and the workers: the command chooses.
FROM python:3.11-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Without an index of CPU builds pip brings the build of torch for GPUs, which is gigabytes larger:
# --build-arg PIP_FLAGS='--extra-index-url URL'
ARG PIP_FLAGS=""
COPY pyproject.toml constraints.txt CMakeLists.txt README.md LICENSE ./
COPY csrc csrc
COPY engine engine
COPY extraction extraction
COPY schemas schemas
COPY workers workers
RUN python3 -m venv /opt/pagemill \
 && /opt/pagemill/bin/pip install --no-cache-dir $PIP_FLAGS -c constraints.txt '.[engine]'
RUN PAGEMILL_CACHE=/opt/cache /opt/pagemill/bin/pagemill model pull

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin pagemill \
 && install -d -o 10001 -g 10001 -m 700 /run/pagemill
COPY --from=build /opt/pagemill /opt/pagemill
COPY --from=build /opt/cache /opt/cache
ENV PATH=/opt/pagemill/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PAGEMILL_CACHE=/opt/cache \
    PAGEMILL_ENGINE_ENDPOINT=ipc:///run/pagemill/engine.sock
USER 10001:10001
ENTRYPOINT ["pagemill"]
CMD ["--help"]
