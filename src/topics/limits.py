"""Every bound on what comes from outside, with its unit last in the name.

Values that an operator may change are defaults here and are read in `server/settings.py`;
the others are fixed.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

U16_MAX = 2**16 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

# Names
TOPIC_NAME_CHARS_MAX = 255

# Writes (defaults; see Settings)
BATCH_RECORDS_MAX = 10_000
RECORD_BYTES_MAX = 1 * MIB
BODY_BYTES_MAX = 64 * MIB
META_BYTES_MAX = 16 * KIB
META_KEYS_MAX = 64
TAG_BYTES_MAX = 256
NODE_BYTES_MAX = 128
IDEMPOTENCY_KEY_CHARS_MAX = 256
IDEMPOTENCY_KEYS_PER_TOPIC_MAX = 1_000_000

# Reads
DIFF_LIMIT_DEFAULT = 256
DIFF_LIMIT_MAX = 1000
DIFF_WAIT_MS_MAX = 30_000
DIFF_REPLY_BYTES_MAX = 1 * MIB
NODE_FILTER_ENTRIES_MAX = 1024
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1000
CLAIM_MAX = 1000
WATCH_TOPICS_MAX = 256
METRICS_TOPICS_MAX = 1000

# Topic configuration clamps
PRIORITY_MIN = -1000
PRIORITY_MAX = 1000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
CLAIM_JITTER_MS_MAX = 5000

# Resource caps (defaults; 0 = unlimited)
TOPICS_MAX = 100_000
ROUTERS_MAX = 10_000
WATCH_SESSIONS_MAX = 10_000
SSE_CONNECTIONS_MAX = 10_000
SSE_CONNECTIONS_PER_KEY_MAX = 1000
INFLIGHT_PER_KEY_MAX = 1000
TOTAL_BYTES_MAX = 0
RESOURCE_RETRY_AFTER_S = 1

# HTTP
URL_BYTES_MAX = 8 * KIB
HEADER_BYTES_MAX = 32 * KIB
HEADER_COUNT_MAX = 100
REQUEST_ID_CHARS_MAX = 64
CONNECTIONS_MAX = 20_000
PARSE_SLICE_BYTES = 16 * KIB  # how much input is parsed before asking whether the connection must wait
EARLY_ADMISSION_BODY_BYTES_MIN = 64 * KIB
GZIP_REPLY_BYTES_MIN = 1 * KIB
GZIP_INLINE_BYTES_MAX = 256 * KIB  # larger bodies are packed and unpacked off the loop
GZIP_UNPACKED_INLINE_BYTES_MAX = 1 * MIB  # and so are small ones that turn out to unpack to more than this
GZIP_MEMBERS_MAX = 10_000
WRITE_BUFFER_HIGH_BYTES = 256 * KIB
HEAD_TIMEOUT_S = 30.0
BODY_STALL_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 75.0
DRAIN_TIMEOUT_S = 30.0
LINGER_TIMEOUT_S = 2.0
LINGER_BYTES_MAX = 128 * MIB
SWEEP_INTERVAL_S = 1.0
STREAM_BUFFER_HIGH_BYTES = 64 * KIB  # above this a taken-over connection is not writable, until a quarter is left
STREAM_BUFFER_BYTES_MAX = 8 * MIB  # above this it is cut: its owner went on writing all the same
STREAM_JOIN_BYTES_MAX = 16 * KIB  # above this the pieces of a write are not copied into one
STREAM_INPUT_BYTES_MAX = 64 * KIB  # what the client of a stream may send behind its request
STREAM_CLOSE_TIMEOUT_S = 5.0
SHUTDOWN_GRACE_S = 10.0
LISTEN_DELAY_S = 0.5

# How long a thread may keep the interpreter from the event loop. Python's own 5 ms let a checkpoint, which works on
# Python objects, hold up each callback of the loop for that long.
THREAD_SWITCH_S = 0.0005

# The journal
WAL_FILE_BYTES = 64 * MIB
WAL_SYNC_INTERVAL_MS = 50
WAL_WRITE_GAP_MS = 5
WAL_QUEUE_WRITES_MAX = 65_536
WAL_QUEUE_BYTES_MAX = 256 * MIB
CHECKPOINT_POLL_S = 0.25
CHECKPOINT_INTERVAL_S = 30.0
CHECKPOINT_SEAL_INTERVAL_S = 1.0
CHECKPOINT_WAL_BYTES = 64 * MIB
SEGMENTS_OPEN_MAX = 1024
COLD_LOADED_BYTES_MAX = 256 * MIB
COLD_FETCHES_MAX = 4

# Seqs reserved ahead of need for topics of class `disk`
SEQ_RESERVATION_MIN = 64
SEQ_RESERVATION_MAX = 65_536
SEQ_RESERVATION_PACE_MS = 1000

# Memory blocks of a topic's log (the unit of reclaim)
SEGMENT_EVENTS_MAX = 10_000
SEGMENT_BYTES_MAX = 64 * MIB
SEGMENT_AGE_MS_MAX = 3_600_000
HOT_RETAIN_SEGMENTS = 4
EXPIRY_INTERVAL_S = 1.0

# Python's garbage collector: how many collections of the middle generation come before a full one; in
# effect, no full one ever comes. A full collection walks every record held: 6 ms for 200 000 of them, 26 ms
# when each has a tag of its own. With them the p99 of write-100 was 76 ms, without 24 ms (one run, 16
# connections). Records and connections go by reference counting, and cycles are still found while young.
# The young thresholds stay Python's: with larger ones single pauses grew from 5 to 28 ms.
MIDDLE_COLLECTIONS_PER_FULL = 1_000_000
