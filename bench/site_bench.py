"""`scripts/bench --site`: relay serve beside other queues and a bare HTTP server. See bench/README.md."""
import contextlib, json, os, re, statistics, subprocess, sys, tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WANTED = [("graphile-worker", 8), ("graphile-worker", 16), ("plainjob", 1)]


def site_rows(relay, peer, row, quick):
    """All rows of the table; `row` is scripts/bench's."""
    env = dict(os.environ, RELAY_BIN=str(relay), RELAY_PEER=str(peer), RAW="0", RUST="0")
    env.setdefault("WORK", str(Path(tempfile.gettempdir()) / "relay-peer-bench"))
    if quick:
        env.update(JOBS="1000", RUNS="1", SAMPLES="50")
    rung, hello = rates(peer, env, ["doorbell", "hello"])
    held = held_doorbells(env, quick)
    queues = beside_peers(env, quick)
    ours = {store: found(queues, "relay serve", store) for store in ("Postgres", "SQLite")}
    graphile = [q for q in queues if q["name"] == "graphile-worker"]
    best = max(q["drain"] for q in graphile)
    started = next(q for q in graphile if q["p50"] is not None)
    plain = found(queues, "plainjob", "SQLite")
    rows = [
        row("HTTP claim + finish, Postgres", ours["Postgres"]["drain"], "/s", "graphile-worker", best, 1.0, more=True),
        row("HTTP claim + finish, SQLite FULL", ours["SQLite"]["drain"], "/s", "plainjob FULL", plain["drain"], 0.7, more=True),
    ]
    for store in ("Postgres", "SQLite"):
        for p in ("p50", "p99"):
            rows.append(row(f"ready to claimed, {store}, {p}", ours[store][p], "ms", "graphile-worker", started[p], 1.0))
    rows += [
        row("doorbells answered", rung, "/s", "bare axum", hello, 0.5, more=True),
        row(f"{held['held']} held doorbells, resident", max(held["rss_mib"], held["after_rss_mib"]), "MiB", None, 300, None),
        row("claims that one new task caused", held["claims"], "", None, 1, None),
    ]
    if held["early"] or held["got"] != 1:
        sys.exit(f"the held doorbells went wrong: {held}")
    print(f"\nadding a task over HTTP: Postgres {ours['Postgres']['enqueue']:.0f}/s, SQLite {ours['SQLite']['enqueue']:.0f}/s;"
          f" graphile-worker {max(q['enqueue'] for q in graphile):.0f}/s, plainjob FULL {plain['enqueue']:.0f}/s")
    print(f"held: {held}")
    return rows


def beside_peers(env, quick):
    folder = Path(env.get("RELAY_PEER_BENCH") or sys.exit("RELAY_PEER_BENCH names no folder; see bench/README.md"))
    peers = json.loads((folder / "peers.json").read_text())
    wanted = [p for p in peers if (p["name"], p["conc"]) in WANTED and "NORMAL" not in p["durability"]]
    for p in wanted:
        for extra in ("batch_enq", "batch_drain"):
            p.pop(extra, None)
    wanted += json.loads((HERE / "peer" / "ours.json").read_text())
    if quick:
        for p in wanted:
            p["jobs"] = 1000
    work = Path(env["WORK"])
    work.mkdir(parents=True, exist_ok=True)
    (work / "site.json").write_text(json.dumps(wanted))
    done = subprocess.run(["bash", folder / "run.sh", work / "site.json"], env=env, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    if done.returncode:
        sys.exit(f"{folder}/run.sh ended with {done.returncode}")
    return [q for q in map(parsed, done.stdout.splitlines()) if q]


def parsed(line):
    """One row of the benchmark's own table."""
    cells = [c.strip() for c in line.strip("|").split("|")]
    if len(cells) < 14 or not cells[5][:1].isdigit():
        return None
    number = lambda text: float(text.replace(",", "")) if text[:1].isdigit() else None
    times = re.match(r"([\d.,]+) / ([\d.,]+)", cells[10])
    if "FAILED" in cells[13]:
        sys.exit(f"{cells[0]} on {cells[2]}: {cells[13]}")
    return {"name": cells[0], "store": cells[2].split()[0], "enqueue": number(cells[6]), "drain": number(cells[8]),
            "p50": number(times[1]) if times else None, "p99": number(times[2]) if times else None}


def found(queues, name, store):
    return next(q for q in queues if q["name"] == name and q["store"] == store)


def held_doorbells(env, quick):
    with tempfile.TemporaryDirectory(prefix="relay-held-") as scratch:
        env = dict(env, DB=f"{scratch}/held.db", HELD="1000" if quick else "10000")
        env.pop("DSN", None)
        done = subprocess.run([env["RELAY_PEER"], "held"], env=env, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def rates(peer, env, scenarios):
    """Requests a second of each, by wrk with 64 connections: the sides take turns, and the median of three counts."""
    with contextlib.ExitStack() as open_now:
        scratch = open_now.enter_context(tempfile.TemporaryDirectory(prefix="relay-rate-"))
        env = dict(env, DB=f"{scratch}/rate.db")
        env.pop("DSN", None)
        sides = [(scenario, open_now.enter_context(served(peer, env, scenario)), []) for scenario in scenarios]
        for _ in range(3):
            for scenario, at, found in sides:
                argv = ["wrk", "-t2", "-c64", "-d4s", "-H", f"authorization: Bearer {at['token']}", at["url"]]
                said = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout
                if "Non-2xx" in said:
                    sys.exit(f"{scenario}: {said}")
                found.append(float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]))
        return [statistics.median(found) for _, _, found in sides]


@contextlib.contextmanager
def served(peer, env, scenario):
    """A server of the peer's, ended with its input; where it is, as it says."""
    server = subprocess.Popen([peer, scenario], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(server.stdout.readline())
    finally:
        server.stdin.close()
        server.wait(30)