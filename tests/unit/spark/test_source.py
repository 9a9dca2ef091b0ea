"""What Spark's planning processes have to import to find the source and to make one."""

import subprocess
import sys

MADE = (
    "import sys\n"
    "from pyspark.sql.datasource import CaseInsensitiveDict\n"
    "import pyspark_topics\n"
    "source = pyspark_topics.DefaultSource(CaseInsensitiveDict({'subscribe': 'orders', 'path': '/data'}))\n"
    "assert source.name() == 'topics'\n"
    "found = [name for name in sys.modules if name.split('.')[0] in {'pyarrow', 'numpy', 'msgspec'}]\n"
    "assert not found, found\n"
)


def test_a_source_is_found_and_made_without_what_reads_and_writes() -> None:
    subprocess.run([sys.executable, "-c", MADE], check=True)
