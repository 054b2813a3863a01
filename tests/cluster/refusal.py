"""Does what the refusal of a topic says, word by word: the requests and commands that stand in its text."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.cluster.rest.serving import Asked
from tests.cluster.running import COMMAND_S, OWN_PATH, wait_until


class Refusal:
    """The text of a refused topic."""

    def __init__(self, text: str, client: Asked) -> None:
        """``client`` asks a worker of the flow."""
        self.text = text
        self._client = client

    def next_offset(self, partition: int, target_end: int) -> int:
        """Run the question that the text names, for any partition, and return its answer."""
        (words,) = re.findall(r"mm2py (translate .*?) answers", self.text)
        words = re.sub(r"--partition \d+", f"--partition {partition}", words)
        line = self._run(re.sub(r"--offset (\d+|END)", f"--offset {target_end}", words))
        (found,) = re.findall(r"-> \S+ offset (\d+), exact", line)
        return int(found)

    def go_on_behind(self, last: Mapping[int, int]) -> None:
        """Send the requests that the text names, with N by partition."""
        (patch,) = re.findall(r"PATCH (\S+) with (\{.*?\}\]\})", self.text)
        body = json.loads(patch[1].replace(":N}", ":-1}"))
        (entry,) = body["offsets"]
        entries = [
            {"partition": entry["partition"] | {"partition": number}, "offset": {"offset": at}}
            for number, at in last.items()
        ]
        self.send({"offsets": entries})

    def send(self, body: Any) -> None:
        """Send the requests with a body that comes from elsewhere."""
        (stop,) = re.findall(r"PUT (\S+/stop)", self.text)
        (patch,) = re.findall(r"PATCH (\S+) with", self.text)
        (resume,) = re.findall(r"PUT (\S+/resume)", self.text)
        self._client.told("PUT", stop, 204)
        wait_until(  # 409: a worker has not said yet that it has drained
            lambda: self._client.request("PATCH", patch, json=body).status_code == 200, "the offsets are set"
        )
        self._client.told("PUT", resume, 202)

    def rebuild(self) -> str:
        """Run the other command that the text names."""
        (words,) = re.findall(r"mm2py (rebuild-ledger .*?)\. ", self.text)
        return self._run(words)

    def _run(self, words: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", *shlex.split(words)],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            text=True,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout
