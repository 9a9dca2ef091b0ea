"""Moves topics from one running server to another, over their APIs: for a data directory this version does not read.

    python scripts/move_topics.py http://127.0.0.1:4001 http://127.0.0.1:4000 [--from-key K] [--to-key K] [PREFIX]

Start the version that wrote the directory on it, and this one on an empty one; stop whoever writes. Configurations,
records (data, meta, tag, node), named cursors and routers come over. Seqs are counted anew from 1 and `$ts` is the time
of the move; cursors stand before the same record as they did. Leases end: a job somebody held is there to be claimed.
A topic that has records at the target is refused: delete it there and run this again.
"""

import argparse
import sys
from itertools import islice

import msgspec

from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.errors import TopicNotFound, TopicsError

BATCH_RECORDS = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="URL of the server that has the topics")
    parser.add_argument("target", help="URL of the server that is to have them")
    parser.add_argument("prefix", nargs="?", default="", help="only topics whose names begin so")
    parser.add_argument("--from-key", help="API key for the source")
    parser.add_argument("--to-key", help="API key for the target")
    args = parser.parse_args()
    with Client(args.source, args.from_key) as source, Client(args.target, args.to_key) as target:
        try:
            names = [summary.topic for summary in source.topics(args.prefix)]
            for name in names:
                _refuse_if_there(target, name)
            for name in names:
                print(f"{name}: {move_topic(source, target, name)}", flush=True)
            for summary in source.routers():
                if summary.source in names and summary.dest in names:
                    move_router(source, target, summary.router)
                    print(f"router {summary.router}", flush=True)
        except TopicsError as error:
            print(f"move_topics: {error.message}", file=sys.stderr)
            return 1
    return 0


def _refuse_if_there(target: Client, name: str) -> None:
    try:
        head_seq = target.topic(name).head_seq
    except TopicNotFound:
        return
    if head_seq:
        raise TopicsError(f"{name} has records at the target already: delete it there, then run this again")


def move_topic(source: Client, target: Client, name: str) -> str:
    target.create(name, **msgspec.to_builtins(source.topic(name).config))
    seqs = sorted((cursor.seq, cursor.name) for cursor in source.cursors(name).cursors)
    moved = 0
    records = source.export(name)
    while batch := list(islice(records, BATCH_RECORDS)):
        target.append_many(name, [NewRecord(each.data, each.tag, each.node, each.meta) for each in batch])
        while seqs and seqs[0][0] < batch[-1].seq:
            seq, cursor = seqs.pop(0)
            target.set_cursor(name, cursor, moved + sum(each.seq <= seq for each in batch))
        moved += len(batch)
    for _, cursor in seqs:
        target.set_cursor(name, cursor, moved)
    return f"{moved} records"


def move_router(source: Client, target: Client, name: str) -> None:
    router = source.router(name)
    target.put_router(
        name,
        router.source,
        router.dest,
        filter=router.filter,
        preserve_node=router.preserve_node,
        preserve_tag=router.preserve_tag,
        allow_cycle=router.allow_cycle,
        guarantee=router.guarantee,
    )


if __name__ == "__main__":
    sys.exit(main())
