"""Map and reduce: the words of many files are counted, each file by a task of its own.

python wordcount.py folder-with-text-files
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from holdfast import Holdfast


@Holdfast.durable(queue="files")
def count_words(path: str) -> dict[str, int]:
    return Counter(Path(path).read_text().lower().split())


@Holdfast.durable
async def most_common(folder: str, most: int = 3) -> list[tuple[str, int]]:
    files = await Holdfast.step("list", list_files, folder)
    total: Counter[str] = Counter()
    for counts in await count_words.map(files, at_most=100):
        total.update(counts)
    return total.most_common(most)


def list_files(folder: str) -> list[str]:
    """A step: were a file added later, a replay would not see it."""
    return sorted(str(path) for path in Path(folder).glob("*.txt"))


async def main(folder: str) -> None:
    async with Holdfast.bootstrap(serve=True) as app:
        task = await app.dispatch(most_common, folder)
        for word, count in await task.result(timeout=60):
            print(count, word)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
