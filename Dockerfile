# syntax=docker/dockerfile:1
# The server alone, without Spark. docker build -t topics . && docker run -p 4000:4000 -v topics:/data -e TOPICS_API_KEYS=… topics
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/topics && /opt/topics/bin/pip install --no-cache-dir .

FROM python:${PYTHON}-slim
COPY --from=build /opt/topics /opt/topics
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin topics \
    && install --directory --owner=topics --mode=0700 /data
ENV PATH=/opt/topics/bin:$PATH \
    TOPICS_HOST=0.0.0.0 \
    TOPICS_DATA_DIR=/data \
    TOPICS_LOG_FORMAT=json
USER 10001
VOLUME /data
EXPOSE 4000
# Requests in flight get 10 s to finish, then the last checkpoint: docker stop --time 30.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:4000/v0/health', timeout=2)"]
ENTRYPOINT ["topics"]
CMD ["serve"]
