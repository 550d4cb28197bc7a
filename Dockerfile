# One image for the engine, the API and the workers: the command chooses.

# What others wrote changes rarely, so it is a layer of its own.
FROM python:3.11-slim AS dependencies
WORKDIR /src
# Without an index of CPU builds pip brings the build of torch for GPUs, which is gigabytes larger:
# --build-arg PIP_FLAGS='--extra-index-url URL'
ARG PIP_FLAGS=""
COPY pyproject.toml constraints.txt ./
RUN python3 -m venv /opt/pagemill \
 && python3 -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["engine"], sep="\n")' > requirements.txt \
 && /opt/pagemill/bin/pip install --no-cache-dir $PIP_FLAGS -c constraints.txt -r requirements.txt

FROM dependencies AS build
# python3-dev: for a base image whose Python is Debian's, which comes without headers.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ python3-dev \
 && rm -rf /var/lib/apt/lists/*
ARG PIP_FLAGS=""
COPY CMakeLists.txt README.md LICENSE ./
COPY csrc csrc
COPY engine engine
COPY extraction extraction
COPY schemas schemas
COPY workers workers
RUN /opt/pagemill/bin/pip wheel --no-cache-dir --no-deps $PIP_FLAGS --wheel-dir /wheels .

FROM dependencies AS model
# `model pull` is our own code, so the download comes after it; its layer holds the model alone.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    /opt/pagemill/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
 && PAGEMILL_CACHE=/opt/cache /opt/pagemill/bin/pagemill model pull

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin pagemill \
 && install -d -o 10001 -g 10001 -m 700 /run/pagemill \
 && install -d -o 10001 -g 10001 -m 755 /run/roles /run/roles/redis \
 && install -d -o 10001 -g 10001 -m 700 /run/roles/api /run/roles/worker /run/roles/producer /run/roles/monitor
COPY --from=dependencies /opt/pagemill /opt/pagemill
COPY --from=model /opt/cache /opt/cache
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    /opt/pagemill/bin/pip install --no-cache-dir --no-deps /wheels/*.whl
ENV PATH=/opt/pagemill/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PAGEMILL_CACHE=/opt/cache \
    PAGEMILL_ENGINE_ENDPOINT=ipc:///run/pagemill/engine.sock
USER 10001:10001
ENTRYPOINT ["pagemill"]
CMD ["--help"]
