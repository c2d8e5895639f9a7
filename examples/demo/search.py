"""Search a STAC API with pystac-client: `python search.py ADDRESS`. What it finds is kept in found.json.

Where people are declared, the catalogue asks for the token of one who may read: it is in KFM_TOKEN.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from pystac_client import Client

KANSAS = [-102.05, 36.99, -94.59, 40.0]
AN_HOUR = "2026-03-14T12:00:00Z/2026-03-14T13:00:00Z"


def main(address: str) -> None:
    token = os.environ.get("KFM_TOKEN")
    client = Client.open(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    print(f"{client.title}: {', '.join(sorted(one.id for one in client.get_collections()))}")

    found = list(client.search(bbox=KANSAS, datetime=AN_HOUR, limit=200).items())
    print(f"over Kansas, from 12 to 13 UTC: {len(found)} items")
    for name, count in sorted(Counter(item.collection_id or "" for item in found).items()):
        print(f"  {name:10} {count}")
    first = min((item for item in found if item.collection_id == "hrrr"), key=lambda item: item.id)
    print(f"for example {first.id}")
    for role, asset in sorted(first.assets.items()):
        print(f"  {role:10} {asset.href}")

    items = [item.to_dict() for item in client.search(limit=1000).items()]
    print(f"altogether: {len(items)} items, {sum(len(item['assets']) for item in items)} files")
    kept = [
        {
            "item": f"{item['collection']}/{item['id']}",
            "files": [asset["href"] for asset in item["assets"].values()],
        }
        for item in items
    ]
    Path("found.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main(sys.argv[1])
