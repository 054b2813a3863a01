"""The demo: two real clusters on loopback, sample traffic on both, and mm2py mirroring it both ways, shown as a table.

``python -m deploy.local.demo`` runs until Ctrl-C; with ``--seconds N`` it ends by itself, compares both sides record by
record with the tests' checker, and exits with 1 on any difference. It leaves no process and no file behind.
Answers to nothing in MirrorMaker 2.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol, TextIO

import uvloop
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from deploy.local.boot_image import boot_image
from deploy.local.broker_settings import COMPACT_AT_ONCE
from deploy.local.demo_table import WIDTH, Rates, problems_of, rows_of, table_of
from deploy.local.demo_traffic import TopicTraffic, TrafficFailed, compare, make_traffic
from deploy.local.demo_verdict import TopicVerdict, exit_code, lines_of
from deploy.local.errors import StarterError
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.cli import make_herder
from mm2py.config.settings import Configuration, load_configuration
from mm2py.connector import FlowStatus
from mm2py.errors import Mm2Error
from mm2py.logs import make_logger
from mm2py.worker.herder import Herder
