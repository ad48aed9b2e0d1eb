"""Tests of what decides: what is counted, what a kill did to steps, and what the tables say.

`python3 -m unittest discover benches/peers` runs them; nothing is built and nothing is installed.
"""

import os
import sys
import tempfile
import textwrap
import unittest

PEERS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [PEERS, os.path.join(PEERS, "python")]

import protocol
from harness import builds, measure, table
from harness.peers import PEERS as ALL
from harness.peers import Peer
from harness.programs import Failed

# A peer of a few lines: a journal of numbers, written after every `LAZY` steps.
TOY = """
import os, sys, time
sys.path.insert(0, {python!r})
from protocol import Stage, arguments, drive

stage = Stage(time.perf_counter())
lazy = int(os.environ["LAZY"])

def run(ids, steps):
    path = stage.path("journal-" + ids[0])
    known = set(open(path).read().split()) if os.path.exists(path) else set()
    waiting = []
    for number in range(steps):
        if str(number) not in known:
            stage.body(number)
            time.sleep(0.002)
            waiting.append(number)
            if len(waiting) == lazy or stage.mode != "kill":
                with open(path, "a") as journal:
                    journal.write("".join(str(one) + " " for one in waiting))
                waiting = []
        stage.finished(number)

drive(stage, run)
"""


class Toys:
    """Starts the toy instead of a peer."""

    def __init__(self, folder):
        self.file = os.path.join(folder, "toy.py")
        with open(self.file, "w", encoding="ascii") as file:
            file.write(textwrap.dedent(TOY).format(python=os.path.join(PEERS, "python")))

    def of(self, peer):
        return [sys.executable, self.file]


class Amount:
    """Little."""

    rounds, many_rounds, seconds, replays, record_seconds = 1, 1, 30, 1, 30


class Kills(unittest.TestCase):
    """The kill test can tell a journal that forgets from one that does not."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        toys = Toys(self.folder.name)
        self.bench = measure.Bench(self.folder.name, None, Amount, toys)

    def toy(self, lazy):
        return Peer("toy", "toy", "toy.py", "", "", env={"LAZY": str(lazy)})

    def test_a_journal_that_is_written_at_once_repeats_no_finished_step(self):
        found = self.bench.kills(self.toy(1), 2)
        self.assertEqual((found["kills"], found["stopped"]), (2, 0))
        self.assertGreater(found["finished"], 0)
        self.assertEqual((found["finished_again"], found["never"]), (0, 0))

    def test_a_journal_that_is_written_late_is_found_out(self):
        found = self.bench.kills(self.toy(50), 2)
        self.assertGreater(found["finished_again"], 0)
        self.assertGreaterEqual(found["bodies_again"], found["finished_again"])

    def test_a_program_that_ends_says_why(self):
        with self.assertRaisesRegex(Failed, "invalid literal"):
            self.bench.kills(self.toy("often"), 1)

    def test_a_replay_begins_the_first_new_step_and_no_recorded_one(self):
        self.assertEqual(self.bench.replay(self.toy(1), 5)["again"], 0)


class Judging(unittest.TestCase):
    """What lines of the ledger mean."""

    def test_a_finished_step_whose_body_runs_again_is_counted(self):
        before = ["b 0", "f 0", "b 1", "f 1", "b 2"]
        after = ["f 0", "b 1", "f 1", "b 2", "f 2"]
        after += [f"b {number}" for number in range(3, 100)]
        found = measure.judged(before, after)
        expected = {"finished": 2, "finished_again": 1, "built_on_again": 1}
        self.assertEqual(found, expected | {"bodies_again": 2, "never": 0})

    def test_the_last_finished_step_was_not_built_on(self):
        found = measure.judged(["b 0", "f 0", "b 1", "f 1"], ["b 1", "f 1"])
        self.assertEqual((found["finished_again"], found["built_on_again"]), (1, 0))

    def test_a_step_that_is_left_out_is_counted(self):
        self.assertEqual(measure.judged(["b 0", "f 0"], [])["never"], 99)

    def test_syncs_are_counted_once_each(self):
        lines = ["7 fdatasync(3) = 0", "7 fsync(4 <unfinished ...>", "8 msync(0x1, 2, MS_SYNC) = 0"]
        lines += ["7 <... fsync resumed>) = 0", "8 sync_file_range(3, 0, 0, 4) = 0", "+++ exited"]
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            log.write("\n".join(lines))
            log.flush()
            self.assertEqual(measure.count(log.name), 4)


def row(name, ratio, **more):
    rate = {"ratio": ratio, "steps_per_s": 1_000 / ratio, "floor_us": 120}
    kinds = {"label": name, "settings": "s", "promise": "p", "versions": {name: "1.0"}}
    return {"name": name, **kinds, "errors": {}, "rates": {"1": rate}, "syncs": {"1": 1.02}} | more


class Tables(unittest.TestCase):
    """Tables compare with Deedbook, and hide no failure."""

    def test_a_ratio_is_to_deedbook_of_the_same_run(self):
        text = table.steps([row("deedbook", 2.0), row("other", 9.0)])
        self.assertIn("| other | 9.0 | 4.5 | 111 | 120 | 1.0 | failed |", text)

    def test_without_deedbook_nothing_is_compared_with_it(self):
        self.assertIn("| other | 9.0 |  | 111 |", table.steps([row("other", 9.0)]))

    def test_a_failure_stands_in_the_table_with_its_error(self):
        kills = {"3": {"kills": 2, "stopped": 1, "why": "it hangs", "finished": 80}}
        kills["3"] |= {"finished_again": 4, "built_on_again": 1, "bodies_again": 5, "never": 7}
        bad = row("bad", 1.0, errors={"replay 1000": "no room"}, kills=kills)
        report = {"date": "d", "command": "c", "machine": {"cores": 2}, "peers": [bad]}
        text = table.document(report)
        self.assertIn("- bad, replay 1000: `no room`", text)
        self.assertIn("- bad, 1 kills: `it hangs`", text)
        self.assertIn("- bad, steps without any body: 7", text)
        self.assertIn("| bad | 2 | 80 | 4 | 5.0 | 1 | 1.2 | 5 | 2.5 | 1 |", text)

    def test_tables_replace_what_stands_between_the_marks_only(self):
        page = f"above\n\n{table.MARK_BEGIN}\n\nold\n\n{table.MARK_END}\n\nbelow\n"
        new = table.into(page, "new")
        self.assertEqual(new, page.replace("old", "new"))
        with self.assertRaises(ValueError):
            table.into("a page without marks", "new")


class Peers(unittest.TestCase):
    """Every peer has a program, and versions that are pinned."""

    def test_every_peer_has_its_program_and_pinned_versions(self):
        for peer in ALL:
            where = ["python", peer.program] if peer.is_python else ["rust", peer.program, "src"]
            self.assertTrue(os.path.exists(os.path.join(PEERS, *where)), peer.name)
            self.assertNotIn("unknown", builds.versions(peer).values(), peer.name)

    def test_a_step_has_200_bytes_of_arguments_and_100_of_result(self):
        for number in (0, 7, 2**32 - 1):
            self.assertEqual(len(protocol.arguments(number)), 200)
            self.assertEqual(len(protocol.result(number)), 100)


if __name__ == "__main__":
    unittest.main()
