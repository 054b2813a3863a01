"""What the benches of ledger and checkpoints promise by count; what takes time is only run once, with small numbers."""

from __future__ import annotations

import asyncio

from bench import checkpoints_model, ledger_cost
from bench.checkpoints_model import PHASES, Size
from bench.ledger_cost import PARTITIONS, SHAPES
from bench.runs import Run
from tests.fakes.virtual_time import run_virtual

FACTS = {"date": "2026-11-23", "machine": {"cores": 2}}


def test_a_plain_topic_writes_one_short_chunk_a_second_for_each_partition_however_many_records_it_has() -> None:
    for shape in ("plain-16", "plain-150"):
        found = asyncio.run(ledger_cost.measure(SHAPES[shape], 500_000))
        chunks_a_second = found["chunks"] / 1e6 * ledger_cost.PER_SECOND
        assert chunks_a_second <= PARTITIONS + 1
        assert found["bytes"] / found["chunks"] < 60


def test_a_transaction_adds_little_more_than_a_byte_to_the_ledger_topic() -> None:
    for shape in ("transactions-10", "transactions-150"):
        found = asyncio.run(ledger_cost.measure(SHAPES[shape], 500_000))
        transactions = 1e6 / ledger_cost.TRANSACTION_RECORDS
        assert found["bytes"] / transactions < 1.2


def test_checkpoints_of_a_large_flow_are_exact_in_every_phase() -> None:
    size = Size(partitions=300, long_partitions=3, runs=1_000, groups=40)
    found = run_virtual(checkpoints_model.measure(1, size))
    assert found.keys() == {*PHASES, "commits"}
    memory = run_virtual(checkpoints_model.measure_memory(1, size))
    runs = [Run("time", "mm2py", 1, 40, found), Run("memory", "mm2py", 1, 40, memory)]
    page = checkpoints_model.report(runs, size, FACTS)
    assert page.count("| held |") == sum(goal is not None for _, goal in PHASES.values())


def test_a_goal_that_is_missed_is_said_so() -> None:
    measures = {"noting_s": 0.03, "writing_s": 0.04, "ledger_s": 0.07, "syncs_s": 0.01, "chunks": 120.0, "bytes": 5e3}
    page = ledger_cost.report([Run("plain-16", "mm2py", number, 10, measures) for number in range(3)], FACTS)
    assert page.count("**missed**") == 1 and "0.0700 (0.0700)" in page
