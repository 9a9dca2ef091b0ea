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
PRODUCERS_PER_TOPIC_MAX = 4096

# Reads
DIFF_LIMIT_DEFAULT = 256
DIFF_LIMIT_MAX = 1000
DIFF_WAIT_MS_MAX = 30_000
DIFF_REPLY_BYTES_MAX = 1 * MIB
NODE_FILTER_ENTRIES_MAX = 1024
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1000
TOPIC_SCHEMA_BYTES_MAX = 8 * 1024
CLAIM_MAX = 1000
WATCH_TOPICS_MAX = 256
METRICS_TOPICS_MAX = 1000
METRICS_CURSORS_MAX = 1000
METRICS_SLICE_TOPICS = 100  # told in one turn of the loop
DELETE_PREVIEW_RECORDS_MAX = 10  # shown of what a delete would remove
DELETE_PREVIEW_BYTES_MAX = 64 * KIB  # of their text
OVERVIEW_PAGE_SIZE_DEFAULT = 1000
OVERVIEW_PAGE_SIZE_MAX = 10_000
OVERVIEW_SLICE_TOPICS = 64  # told in one turn of the loop
OVERVIEW_CURSORS_MAX = 8  # of each topic: those furthest behind
MAP_ENTRIES_MAX = 1000  # of each list in the map of a topic

# Warnings of fields nobody knows
WARNINGS_MAX = 10
WARNING_ENTRIES_MAX = 1000  # of a list, or an object of objects, that are looked through for them
WARNING_NAME_CHARS_MAX = 64

# Topic configuration clamps
PRIORITY_MIN = -1000
PRIORITY_MAX = 1000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
CLAIM_JITTER_MS_MAX = 5000
NACK_DELAY_MS_MAX = 86_400_000
JOB_DELAY_MS_MAX = 31_536_000_000  # a year
MOVE_RECORDS_MAX = 100  # dead letters copied in one write
MOVE_RETRY_MS = 1000  # dead letters that could not be moved are tried again after this
REDRIVE_LOOK_MAX = 1000  # records looked at for them in one turn

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
# A head takes about 800 bytes of memory, 2.5 KB at most. Every topic that is written to has a head of its own: single
# writes to 5000 topics in turn took 64 to 99 us of CPU with 1024 places and 44 to 72 with enough (3 rounds of both).
HEADS_REMEMBERED_MAX = 8192
HEAD_REMEMBERED_BYTES_MAX = 1024
URL_BYTES_MAX = 8 * KIB
HEADER_BYTES_MAX = 32 * KIB
HEADER_COUNT_MAX = 100
REQUEST_ID_CHARS_MAX = 64
CONNECTIONS_MAX = 20_000
LISTEN_BACKLOG = 1024
HOSTS_REMEMBERED_MAX = 256  # names and ports by which this server was called
PREFLIGHT_S_MAX = 600  # how long a browser may remember that a page may use this server
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
LINGER_TIMEOUT_S = 5.0  # without a byte of what a refused client still sends
LINGER_S_MAX = 30.0
LINGER_BYTES_MAX = 128 * MIB
SWEEP_INTERVAL_S = 1.0
STREAM_TURN_BYTES_MAX = 64 * KIB  # written to a taken-over connection in one turn before it goes to the socket
STREAM_BUFFER_BYTES_MAX = 8 * MIB  # above this it is cut: its owner went on writing though the socket took no more
STREAM_JOIN_BYTES_MAX = 16 * KIB  # above this the pieces of a write are not copied into one
STREAM_INPUT_BYTES_MAX = 64 * KIB  # what the client of a stream may send behind its request
STREAM_CLOSE_TIMEOUT_S = 5.0
SHUTDOWN_GRACE_S = 10.0
LISTEN_DELAY_S = 0.5
LOCK_RETRY_S = 0.2

# Paths whose route is known without looking: each is at most a URL long.
ROUTES_REMEMBERED_MAX = 1024

# How long a thread may keep the interpreter from the event loop. Python's own 5 ms let a checkpoint, which works on
# Python objects, hold up each callback of the loop for that long.
THREAD_SWITCH_S = 0.0005

# Single writes to a topic that wait for the disk and are appended together
WRITES_GATHERED_MAX = 256
WRITES_AWAITED_TURNS = 64  # of the loop, for those that are expected: about 0.2 ms if nothing else happens
WRITERS_REMEMBERED_MAX = 1024

# The journal
WAL_FILE_BYTES = 16 * MIB
WAL_SYNC_INTERVAL_MS = 50
WAL_WRITE_GAP_MS = 20  # at 5, single-record writes of class disk were 5 % fewer
WAL_QUEUE_WRITES_MAX = 65_536
WAL_QUEUE_BYTES_MAX = 256 * MIB
WAL_CUT_INTERVAL_S = 0.1  # how often the lsns of all shards are noted together, for backups
TOPIC_IDS_TOGETHER = 256  # topics that are made at the same time share a log, and take turns with so many ids
CHECKPOINT_POLL_S = 0.25
CHECKPOINT_INTERVAL_S = 30.0
CAPTURE_SLICE_NS = 1_000_000  # of the loop, before others are let in
CAPTURED_TOPICS_MAX = 4096  # taken and not written yet
FOLD_BYTES_MIN = 4 * MIB  # increments together below this are not worth a new base
SNAPSHOT_CHUNK_BYTES = 256 * KIB
INCREMENTS_MAX = 256  # more of them are folded, however small they are
SEAL_POLL_S = 0.5
SEAL_RETRY_S = 1.0
SEAL_EARLY_MAX = 16  # the largest blocks that are looked at when the budget runs low
SEAL_BATCH_BYTES = 4 * MIB  # of blocks that are copied for the thread at once
FREED_BEFORE_GIVEN_BACK_BYTES = 32 * MIB  # of memory by sealing, until all that is free goes back to the system
ENCODED_ELSEWHERE_RECORDS_MIN = 2048  # of a block: what takes 2 ms and more to encode
SEGMENT_PROCESS_STARTS_MAX = 8
SEGMENT_PROCESS_END_S_MAX = 5.0
SEAL_AT_STOP_BYTES = 32 * MIB  # of full blocks: about a second
SEAL_AGED_PER_POLL_MAX = 16  # blocks that are only old: three files each
CHECKPOINT_WAL_BYTES = 32 * MIB
CHECKPOINT_SEALED_BYTES = 4 * MIB  # sealed since the last one: enough for the next, as soon as for
CHECKPOINT_SETTLED_S = 1.0  # nothing more was sealed
CHECKPOINT_LOW_ROOM_INTERVAL_S = 2.0
CHECKPOINT_LOW_ROOM_RETRY_S = 8.0  # at the latest: what was deleted gives its room back by checkpoints
CHECKPOINT_RETRY_S_MIN = 1.0  # after a checkpoint the disk refused; doubled each time, up to
CHECKPOINT_RETRY_S_MAX = 60.0
SEGMENTS_OPEN_MAX = 1024
SEALED_TEXT_NODES_MAX = 16
COLD_LOADED_BYTES_MAX = 256 * MIB
COLD_FETCHES_MAX = 4
COLD_RETRY_S = 1.0  # so long a cold segment that could not be fetched is not asked for again

# File descriptors
DESCRIPTORS_MIN = 256
DESCRIPTORS_RESERVED = 128  # for the log, checkpoints, the cold tier, the interpreter: files that come and go
DESCRIPTORS_SPARE = 16  # of them, kept open to be let go when there are no others
DESCRIPTORS_PER_SEGMENT = 4  # a map holds one: records, index, tags, texts

# Room on the disk of the log (default; see Settings)
FREE_BYTES_MIN = 256 * MIB
ROOM_INTERVAL_S = 0.2  # how often the disk is asked
ROOM_PER_BYTE_TAKEN = 4  # a byte that is taken is written to the log, an increment, a segment, and by a fold
ROOM_PER_BYTE_UNSEALED = 2  # of these are left of a byte in memory that is in the log: a segment, and a fold
ROOM_RETRY_AFTER_S = 5
ROOM_RETRY_MS = 200  # a write the disk had no room for is tried again after this
ROOM_WAIT_AT_STOP_S = 5.0  # then a stop goes on without it

# Backups
BACKUP_POLL_S = 0.02
BACKUP_POLLS_MAX = 1500  # a running server that notes nothing for so long is starting, stopping or stuck

# Seqs reserved ahead of need for topics of class `disk`
SEQ_RESERVATION_MIN = 64
SEQ_RESERVATION_MAX = 262_144
SEQ_RESERVATION_PACE_MS = 1000  # a block that lasted less is followed by a larger one
SEQ_RESERVATION_SLOW_MS = 10_000  # and one that lasted longer by a small one

# A write with disable_backpressure while the disk does not keep up
BACKPRESSURE_RETRY_MS = 10
BACKPRESSURE_WAIT_MS_MAX = 30_000

# Kept per topic for its readers
LOSSES_PER_TOPIC_MAX = 1000
CURSORS_PER_TOPIC_MAX = 1000

# Work on the loop that is cut into slices, so that nobody waits for all of it
ENCODED_BY_LOOP_BYTES_MAX = 1 * MIB  # the frames of a larger write are made by the thread that writes them
DECODE_SLICE_BYTES = 1 * MIB  # of a larger body, decoded in one turn; up to twice as much at its end
DECODE_CUT_BYTES_MAX = 2 * MIB  # looked through for the end of a record
DECODE_HEAD_BYTES_MAX = 64 * KIB  # before the records of a body that is decoded in slices
DECODE_CUT_TRIES_MAX = 3
ADMIT_SLICE_RECORDS = 500  # of a larger write, checked and rendered in one turn
ADMIT_SLICE_BYTES = 4 * MIB  # and one record more
PREPARED_MS_MAX = 1000  # a write prepared longer ago gets another time
WRITE_TURN_BYTES_MAX = 4 * MIB  # a larger body is read in one turn, decoded in several, appended in another
DELETE_SLICE_RECORDS = 10_000  # looked at by a delete by tag in one turn, and one block more
DELETE_PLANS_MAX = 64  # deletes by tag under way, of one topic
EXPIRY_SLICE_TOPICS = 500  # looked at by their TTL in one turn

# Exports
EXPORT_BATCH_RECORDS_MAX = 1000  # gathered in one turn of the loop, and a batch of an Arrow stream
EXPORT_BATCH_BYTES_MAX = 1 * MIB
EXPORT_ENCODERS_MAX = 2
EXPORT_STALL_S_MAX = 300.0  # a job may well pause for a while; after this its connection is closed

# Live delivery
SESSION_TTL_MS = 300_000
HEARTBEAT_MS_MIN = 1000
HEARTBEAT_MS_MAX = 60_000
HEARTBEAT_MS_DEFAULT = 15_000
WATCH_BATCH_BYTES_DEFAULT = 256 * KIB
BATCH_BYTES_MAX = 8 * MIB
PLAIN_ID_TOPICS_MAX = 64
PLAIN_ID_BYTES_MAX = 16 * KIB  # longer ones are packed: the id comes back in a request head
POSITIONS_UNSETTLED_MIN = 16  # so many events of a stream are written before it is asked which have left
ID_BYTES_MAX = 1 * MIB
SLOW_CONSUMER_TIMEOUT_MS = 30_000
STREAM_CHECK_MS = 5000
DELIVERY_SLICE_NS = 5_000_000
DELIVERY_TURN_BYTES_MAX = 2 * MIB  # handed to connections in one turn of the loop, and one batch more
CROWD_MEMBERS_MAX = 64  # of a crowd that are sent to before somebody looks at the clock
SERVING_BYTES_MAX = 1 * MIB  # for one watcher of one topic in one turn, and one batch more
BATCHES_PER_SERVING_MAX = 8
OWN_NODES_SHARED_SEQS_MAX = 64  # watchers so close to the head share a batch, unless they wrote something of it
PACED_RETRY_AFTER_MS = 1500
PACED_TURN_STEPS = 1000  # watchers looked at or told in one turn of the loop; once for each of their topics
SHUTDOWN_RETRY_AFTER_MS = 2000
WEBSOCKET_COMMANDS_MAX = 1000
WEBSOCKET_UNREAD_BYTES_MAX = 4 * MIB  # below what its channel cuts, so that there is a word before the end
WEBSOCKET_PING_MS = 15_000

# The client
CLIENT_ATTEMPTS_MAX = 60
CLIENT_RETRY_TOTAL_MS_MAX = 60_000
CLIENT_PAUSE_MS_MIN = 20
CLIENT_PAUSE_MS_MAX = 2000
CLIENT_TIMEOUT_S = 30.0  # of one attempt; what the server waits on purpose comes on top
CLIENT_CONNECT_S = 10.0
CLIENT_IDLE_S = 60.0  # below the server's own IDLE_TIMEOUT_S: a connection is not used when it is about to be closed
CLIENT_CONNECTIONS_MAX = 64
CLIENT_HEAD_BYTES_MAX = 64 * KIB
CLIENT_STREAM_BUFFER_BYTES = 1 * MIB
CLIENT_FOLLOW_MS = 10_000  # a reader that follows asks again after this
CLIENT_TOPIC_POLL_S = 0.5  # how often a reader looks for a topic that is not there yet
CLIENT_EVENT_TYPES_MAX = 256
CLIENT_EXPORT_STALL_S = 60.0
CLIENT_WATCH_BATCH_BYTES = 1 * MIB
CLIENT_SILENCE_SLACK_S = 5.0  # beyond two heartbeats, before a stream counts as dead
CLIENT_SESSION_CLOSE_S = 1.0
CLIENT_SESSION_ITEMS_MAX = 100_000  # events of a session that wait while it publishes
WORKER_POLL_MS = 1000  # how often a worker asks for jobs that were given back or delayed
WORKER_STOP_S = 30.0
WORKER_BACKOFF_S = 1.0
WORKER_BACKOFF_MAX_S = 300.0
PRODUCER_BATCH_RECORDS = 1000
PRODUCER_BATCH_BYTES = 1 * MIB
PRODUCER_LINGER_S = 0.005
PRODUCER_BUFFER_BYTES = 16 * MIB
CLIENT_PROBE_TIMEOUT_S = 5.0
CLIENT_LINE_BYTES_MAX = 16 * MIB
CLIENT_REPLY_BYTES_MAX = 256 * MIB

# Servers of users' tests
TESTING_START_S = 30.0
TESTING_STOP_S = 30.0
TESTING_POLL_S = 0.01

# Spark
SPARK_CHUNK_RECORDS = 5000
SPARK_CHUNK_BYTES = 4 * MIB
SPARK_BUFFERED_CHUNKS_MAX = 8
SPARK_BATCH_ROWS = 10_000
SPARK_BATCH_BYTES = 8 * MIB
SPARK_TRIGGER_DELAY_MS = 15 * 60_000
SPARK_TASK_RECORDS = 50_000  # smaller ranges share a task
SPARK_INFERRED_RECORDS_MAX = 1000
SPARK_INFERRED_BYTES_MAX = 16 * MIB
ARCHIVE_GROUP_ROWS_MAX = 1 << 17  # of a row group of Parquet, which a task holds until it is written
ARCHIVE_GROUP_BYTES_MAX = 32 * MIB
ARCHIVE_INFERRED_RECORDS_MAX = 10_000  # an archive keeps its schema, so it looks at more
SPARK_LISTED_NAMES_MAX = 64  # topics asked for at once
IMPORT_PART_BYTES = 32 * MIB  # of a file, on average, that the driver holds
EXPORT_FILE_RECORDS_MAX = 1_000_000
PIPELINE_REPORTS_MAX = 100_000  # events kept in topics:pipelines
PIPELINE_FRAME_SEQS_MAX = 1_000_000  # what a function of the user's own gets at once
PIPELINE_EVERY_MS_MIN = 1000  # between two runs of a job

# Memory blocks of a topic's log (the unit of reclaim)
SEGMENT_EVENTS_MAX = 10_000
SEGMENT_BYTES_MAX = 64 * MIB
SEGMENT_AGE_MS_MAX = 3_600_000
UNSEALED_BYTES_MAX = 256 * MIB
UNSEALED_SPARE_BYTES = 80 * MIB  # of that: the files being written, and what the allocator has not found a use for
UNSEALED_RETRY_AFTER_MS = 1000
UNSEALED_SHARE_UNPAUSED = 0.5  # of the budget: beyond it, writes of many records are answered later and later
UNSEALED_PAUSE_MS_MAX = 100.0
SMALL_TAIL_BYTES = 64 * KIB  # a block below this does not count for the budget, and is sealed only when it is old
RECORD_MEMORY_BYTES = 190  # a record in memory takes about so much more than in a file
HOT_RETAIN_SEGMENTS = 4
EXPIRY_INTERVAL_S = 1.0

# Delivery under pressure: the ready set
AGING_TICK_MS = 50
REBANDED_PER_TAKE_MAX = 8  # waiting topics looked at for promotion in one turn
TICKETS_LEFT_BEHIND_MIN = 64  # below this many, dead queue entries are not worth sweeping up

# A file of settings
SETTINGS_FILE_BYTES_MAX = 1 << 20

# A file of keys. A request's key is compared with each of them
KEYS_FILE_BYTES_MAX = 1 << 20
KEYS_FILE_KEYS_MAX = 1000

# The state of the process
VITALS_INTERVAL_S = 2.0
REFUSALS_INTERVAL_S = 60.0  # a line of the log with the counts, if there were any
LOOP_LAG_SAMPLES = 100  # ten seconds of them
LOOP_STALL_MS = 1000  # a loop this late is logged

# Delivery under pressure: the governor. At an estimated 20 µs of the loop a topic, the last of 256 waits about 5 ms.
PRESSURE_SAMPLE_INTERVAL_MS = 100
PRESSURE_HALF_LIFE_MS = 100
READY_DEPTH_MAX = 256
SCHEDULING_LATENCY_MS_MAX = 5.0
COALESCE_PRESSURE_MIN = 0.2
COALESCE_MS_MAX = 20.0
COMMIT_WINDOW_PRESSURE_MIN = 0.4
COMMIT_WINDOW_MS_MIN = 0.5
COMMIT_WINDOW_MS_MAX = 10.0
DEFER_PRESSURE_MIN = 0.8
DEFER_SAMPLES_MIN = 3
RESUME_PRESSURE_MAX = 0.6
REFUSE_PRESSURE_MIN = 0.95
PRESSURE_RETRY_AFTER_MS = 1000

# Routers
ROUTER_BATCH_RECORDS_MAX = 1000
ROUTER_BATCH_BYTES_MAX = 1 * MIB
ROUTER_CATCH_UP_RECORDS_MAX = 10_000  # forwarded by one read of a topic before it is read
ROUTER_CATCH_UP_ALL_RECORDS_MAX = 10_000  # before a checkpoint, or before records of a source are deleted
ROUTER_SLICE_NS = 1_000_000  # of the loop, before others are let in
ROUTER_LATE_MS = 1000  # copies made within this time have the $ts of their originals
ROUTER_RETRY_MS_MIN = 10
ROUTER_RETRY_MS_MAX = 1000
ROUTER_STALL_MS_MIN = 1000  # a source that cannot be read is tried again after this, longer each time
ROUTER_STALL_MS_MAX = 60_000
ROUTER_REPLAY_RECORDS_MAX = 100_000  # records a router was behind at a checkpoint that a start looks at at once
METRICS_ROUTERS_MAX = 1000

# Python's garbage collector: how many collections of the middle generation come before a full one; in
# effect, no full one ever comes. A full collection walks every record held: 6 ms for 200 000 of them, 26 ms
# when each has a tag of its own. With them the p99 of write-100 was 41 and 55 ms, without 11 and 10 ms (two
# runs, both servers in each, 16 connections). Records and connections go by reference counting, and cycles
# are still found while young. The young thresholds stay Python's: with 10 000 instead of 700 the longest
# middle collection grew from 5 to 26 ms. Freezing what assembly made changed nothing beside this.
MIDDLE_COLLECTIONS_PER_FULL = 1_000_000

# The command line
CLI_BATCH_RECORDS = 1000
CLI_BATCH_BYTES = 4 * MIB
CLI_LINE_BYTES_MAX = 16 * MIB
CLI_RETRY_MS_MAX = 600_000
CLI_JOIN_S = 1.0  # how often a prefix that is followed is looked up again
