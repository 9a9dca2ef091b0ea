// What the whole console shows of the server: the overview, asked for again and again while the tab is seen, and the
// last hour of it. Looking touches nothing (see GET /v0/overview), and a hidden tab asks for nothing.

import { get } from "./api.js";

const TOPICS_A_PAGE = 10000;
const MANY_TOPICS = 2000;
const SAMPLE_MS = 5000;
const HOUR_SAMPLES = 720;
const TOPIC_SAMPLES = 120;

export const feed = {
  server: null, topics: [], byName: new Map(), error: null, at: 0, receivedAt: 0,
  rates: new Map(), hour: [], metrics: null, metricsAt: 0,
};

const listeners = new Set();
const followed = new Map();
let timer = 0;
let running = false;

export function onFeed(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener();
}

// Remembers the course of one topic while its page is open.
export function follow(topic) {
  if (!followed.has(topic)) {
    if (followed.size >= 20) followed.delete(followed.keys().next().value);
    followed.set(topic, []);
  }
  return followed.get(topic);
}

export function startFeed() {
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : tick()));
  tick();
}

export function refresh() {
  return tick();
}

async function tick() {
  clearTimeout(timer);
  if (running || document.hidden) return;
  running = true;
  const begun = performance.now();
  try {
    await load();
    feed.error = null;
  } catch (error) {
    feed.error = error;
  }
  running = false;
  tell();
  const took = performance.now() - begun;
  // A server with many topics is asked less often: never more than a twentieth of the time.
  const pause = Math.max(feed.topics.length > MANY_TOPICS ? 5000 : 2000, took * 20);
  if (feed.error?.status !== 401 && !document.hidden) timer = setTimeout(tick, feed.error ? 2000 : pause);
}

// The server's clock, as well as this page knows it.
export function serverNow() {
  return feed.at + performance.now() - feed.receivedAt;
}

async function load() {
  const topics = [];
  let server = null;
  let cursor = "";
  do {
    const page = await get(`/v0/overview?page_size=${TOPICS_A_PAGE}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    server ??= page.server;
    topics.push(...page.topics);
    cursor = page.next_cursor ?? "";
  } while (cursor);
  const passed = feed.server ? (server.ts - feed.server.ts) / 1000 : 0;
  const restarted = feed.server && server.uptime_ms < feed.server.uptime_ms;
  for (const topic of topics) {
    const before = feed.byName.get(topic.topic);
    const same = before && before.epoch === topic.epoch && passed > 0;
    feed.rates.set(topic.topic, same ? Math.max(0, topic.head_seq - before.head_seq) / passed : null);
  }
  if (feed.rates.size > topics.length) {
    const names = new Set(topics.map((topic) => topic.topic));
    for (const name of feed.rates.keys()) if (!names.has(name)) feed.rates.delete(name);
  }
  const metrics = server.ts - feed.metricsAt >= SAMPLE_MS ? await loadMetrics(server.ts) : null;
  const previous = feed.server;
  Object.assign(feed, { server, topics, byName: new Map(topics.map((topic) => [topic.topic, topic])), at: server.ts, receivedAt: performance.now() });
  if (metrics) remember(server, metrics, restarted ? null : previous);
  for (const [name, samples] of followed) followTopic(name, samples, passed);
}

async function loadMetrics(now) {
  const before = feed.metrics;
  feed.metrics = await get("/v0/metrics");
  const passed = feed.metricsAt ? (now - feed.metricsAt) / 1000 : 0;
  feed.metricsAt = now;
  return { before, passed };
}

function followTopic(name, samples, passed) {
  const topic = feed.byName.get(name);
  if (!topic) return;
  const last = samples.at(-1);
  const reads = last && passed > 0
    ? topic.cursors.reduce((sum, cursor) => sum + Math.max(0, cursor.seq - (last.cursors.get(cursor.name) ?? cursor.seq)), 0) / passed
    : null;
  samples.push({
    ts: feed.at, writes: feed.rates.get(name), reads,
    cursors: new Map(topic.cursors.map((cursor) => [cursor.name, cursor.seq])),
    lags: new Map(topic.cursors.map((cursor) => [cursor.name, cursor.lag])),
  });
  if (samples.length > TOPIC_SAMPLES) samples.shift();
}

function sum(values) {
  return Object.values(values ?? {}).reduce((total, value) => total + value, 0);
}

// Of no use before there are two samples. The bound below which a share of the observations between two samples lies, in the unit of the buckets.
function quantile(now, before, share) {
  if (!before) return null;
  const bounds = Object.keys(now ?? {});
  const grown = bounds.map((bound) => [bound === "+Inf" ? Infinity : Number(bound), now[bound] - (before[bound] ?? 0)]);
  grown.sort((left, right) => left[0] - right[0]);
  const all = grown.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const bound = grown.find(([, seen]) => seen >= all * share)[0];
  return bound === Infinity ? grown.at(-2)?.[0] ?? null : bound;
}

// Several routes in one histogram: their labels stand before the bound.
function merged(histogram) {
  const joined = {};
  for (const [label, value] of Object.entries(histogram ?? {})) {
    const bound = label.slice(label.lastIndexOf(" ") + 1);
    joined[bound] = (joined[bound] ?? 0) + value;
  }
  return joined;
}

function remember(server, { before, passed }, previous) {
  const now = feed.metrics;
  const perSecond = (value, old) => (previous && passed > 0 && old !== undefined ? Math.max(0, value - old) / passed : null);
  const heads = feed.topics.reduce((total, topic) => total + topic.head_seq, 0);
  const last = feed.hour.at(-1);
  feed.hour.push({
    ts: server.ts, heads,
    records: last && previous && passed > 0 ? Math.max(0, heads - last.heads) / passed : null,
    requests: before ? perSecond(sum(now.topics_requests_total), sum(before.topics_requests_total)) : null,
    received: before ? perSecond(now.topics_received_bytes_total, before.topics_received_bytes_total) : null,
    sent: before ? perSecond(now.topics_sent_bytes_total, before.topics_sent_bytes_total) : null,
    lost: before ? perSecond(sum(now.topics_lost_records_total), sum(before.topics_lost_records_total)) : null,
    wal: before ? perSecond(now.topics_wal_bytes_written_total, before.topics_wal_bytes_written_total) : null,
    latency50: quantile(merged(now.topics_request_duration_us_bucket), before && merged(before.topics_request_duration_us_bucket), 0.5),
    latency99: quantile(merged(now.topics_request_duration_us_bucket), before && merged(before.topics_request_duration_us_bucket), 0.99),
    fsync50: quantile(now.topics_wal_fsync_latency_us_bucket, before?.topics_wal_fsync_latency_us_bucket, 0.5),
    fsync99: quantile(now.topics_wal_fsync_latency_us_bucket, before?.topics_wal_fsync_latency_us_bucket, 0.99),
    loop: server.loop.lag_ms_max, memory: server.memory_bytes, connections: server.connections.open,
    live: server.connections.live, pressure: server.pressure, checkpoint: server.checkpoints.last_duration_ms,
    queue: server.wal.queue_depth,
  });
  if (feed.hour.length > HOUR_SAMPLES) feed.hour.shift();
}
