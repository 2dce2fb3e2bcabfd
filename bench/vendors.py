"""What relay adds to a vendor's bare run: the real program, on a model that takes its time, in a job of
relay's and by itself in a ready clone, in turns.
"""
import json, os, shutil, subprocess, sys, threading, time
from pathlib import Path

from model import Model

PROMPT = "Add a file with the total."
GROK_ADDRESSES = ["GROK_XAI_API_BASE_URL", "XAI_API_BASE_URL", "GROK_MODELS_BASE_URL", "GROK_CLI_CHAT_PROXY_BASE_URL"]
LET_THROUGH = ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", *GROK_ADDRESSES,
               "GROK_OAUTH2_ISSUER", "GROK_OAUTH2_CLIENT_ID"]
# As relay switches them off, so that neither side looks for updates or tells of itself.
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "GROK_DISABLE_AUTOUPDATER": "1", "GROK_TELEMETRY_ENABLED": "0",
         "GROK_SUBAGENTS": "0", "GROK_TURN_SUMMARY": "0", "GROK_TITLE_REFRESH": "0", "GROK_MEMORY": "0"}


def vendor_rows(relay, scratch, row, median, quick):
    """The rows, for those of the three that RELAY_TEST_CLAUDE, _CODEX and _GROK name."""
    programs = {name: os.environ.get(f"RELAY_TEST_{name.upper()}") for name in ("claude", "codex", "grok")}
    programs = {name: path for name, path in programs.items() if path}
    if not programs:
        sys.exit("name the vendors' programs by RELAY_TEST_CLAUDE, RELAY_TEST_CODEX, RELAY_TEST_GROK")
    machine = Machine(relay, scratch, programs, Model(1 if quick else 10))
    rounds = 2 if quick else 3
    rows = []
    with machine.worker(len(programs) + 1) as worker:
        slug = machine.cmd("link", machine.repo).strip()
        for lane in programs:
            ours, bare = [], []
            for n in range(rounds):
                sides = [(ours, lambda: machine.job(worker, slug, lane)), (bare, lambda: machine.bare(lane, n))]
                for into, run in sides if n % 2 else reversed(sides):
                    into.append(run())
            time_of, memory_of = (lambda side, at=at: median([one[at] for one in side]) for at in (0, 1))
            beside = f"{lane} alone"
            rows.append(row(f"a run of {lane}", time_of(ours), "s", beside, time_of(bare), 1.05))
            rows.append(row(f"peak memory of all of {lane}'s", memory_of(ours), "MiB", beside, memory_of(bare), 1.05))
        rows.append(machine.all_at_once(worker, slug, row))
    times = [timed(lambda: machine.cmd("doctor", fails=True)) for _ in range(3 if quick else 7)]
    rows.append(row("relay doctor", median(times), "s", None, 2, None))
    return rows


class Machine:
    """A scratch home with the programs, logged in, and a repository."""

    def __init__(self, relay, scratch, programs, model):
        self.relay, self.scratch, self.model, self.programs = relay, scratch, model, programs
        self.home, self.repo = scratch / "home", scratch / "shop"
        bin = scratch / "bin"
        for folder in (bin, self.home / "lanes", scratch / ".codex", scratch / ".grok", self.repo):
            folder.mkdir(parents=True, exist_ok=True)
        for name, path in programs.items():
            (bin / name).write_text(f"#!/bin/sh\nexec '{path}' \"$@\"\n")
            (bin / name).chmod(0o755)
        base = f"{model.url}/v1"
        self.env = {
            "PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(scratch), "GIT_CONFIG_NOSYSTEM": "1",
            "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy", "OPENAI_BASE_URL": base,
            **{name: f"{model.url}/grok/v1" for name in GROK_ADDRESSES}, "GROK_OAUTH2_ISSUER": model.url, "GROK_OAUTH2_CLIENT_ID": "client",
        }
        self.relay_env = {**self.env, "RELAY_HOME": str(self.home), "RELAY_MODEL_GROK": "scripted-model",
                          "RELAY_LANE_ENV": ",".join(LET_THROUGH),
                          "RELAY_LANE_ALLOWED_DOMAINS": f"127.0.0.1:{model.port}"}
        login = {"auth_mode": "apikey", "OPENAI_API_KEY": "dummy"}
        (scratch / ".codex/auth.json").write_text(json.dumps(login))
        (scratch / ".codex/config.toml").write_text(
            f'model_provider = "bench"\n[model_providers.bench]\nname = "bench"\nbase_url = "{base}"\n'
            'wire_api = "responses"\nrequires_openai_auth = true\n')
        (scratch / ".grok/auth.json").write_text(json.dumps({f"{model.url}::client": {
            "key": "access", "auth_mode": "oidc", "create_time": "2026-01-01T00:00:00Z", "user_id": "bench",
            "refresh_token": "refresh", "expires_at": "2099-01-01T00:00:00Z", "oidc_issuer": model.url,
            "oidc_client_id": "client"}}))
        self.git("init", "-q", "-b", "main", self.repo)
        for n in range(40):
            (self.repo / f"file-{n}.txt").write_text(f"line {n}\n" * 50)
        self.git("-C", self.repo, "add", "-A")
        self.git("-C", self.repo, "-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-q", "-m", "first")
        idle = f"#!/bin/sh\nread -r line\nsleep {3 * model.delay}\necho x > idle.txt\n" + \
            "key=$(printf '%s' \"$line\" | sed 's/.*\"jobKey\":\"\\([^\"]*\\)\".*/\\1/')\n" + \
            "printf '{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":{\"reply\":\"done\"}}\\n' \"$key\"\n"
        (scratch / "idle.sh").write_text(idle)
        config = {"command": "/bin/sh", "args": [str(scratch / "idle.sh")], "env": []}
        (self.home / "lanes/idle.json").write_text(json.dumps(config))

    def worker(self, jobs):
        lanes = ",".join([*self.programs, "process:idle"])
        return Worker(self, ["work", "--name", "bench", "--lanes", lanes, "--jobs", str(jobs)])

    def job(self, worker, slug, lane):
        """Seconds from the claim to the release, and the peak of what the worker and all below it held."""
        with Peak(worker.pid) as peak:
            run = self.ended(self.task(slug, lane))
        return (run["finished_at"] - run["claimed_at"]) / 1e3, peak.mib

    def bare(self, lane, n):
        """The same of the program alone: nothing is fetched, committed or pushed."""
        clone = self.scratch / f"bare-{lane}-{n}"
        self.git("clone", "-q", self.repo, clone)
        argv = {
            "claude": ["claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits",
                       "--allowedTools", "Write", "Bash(git status:*)"],
            "codex": ["codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "-"],
            "grok": ["grok", "--prompt-file", "/dev/stdin", "--output-format", "streaming-json", "--always-approve",
                     "-m", "scripted-model"],
        }[lane]
        before = self.model.answers
        start = time.monotonic()
        process = subprocess.Popen(argv, cwd=clone, env={**self.env, **QUIET}, stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        with Peak(process.pid) as peak:
            _, said = process.communicate(PROMPT, timeout=300)
        took = time.monotonic() - start
        if process.returncode or not (clone / "total.txt").exists() or self.model.answers - before != 3:
            sys.exit(f"{lane} alone: exit {process.returncode}, {self.model.answers - before} answers\n{said[-2000:]}")
        shutil.rmtree(clone)
        return took, peak.mib

    def all_at_once(self, worker, slug, row):
        """What the worker itself holds while every lane runs."""
        tasks = [self.task(slug, lane) for lane in [*self.programs, "process:idle"]]
        highest = 0
        while any(self.state(task) in ("queued", "claimed", "running") for task in tasks):
            running = sum(self.state(task) == "running" for task in tasks)
            if running == len(tasks):
                highest = max(highest, resident(worker.pid))
            time.sleep(0.2)
        for task in tasks:
            self.ended(task)
        if not highest:
            sys.exit("the lanes did not run at the same time")
        return row(f"resident memory of a worker with {len(tasks)} lanes running", highest, "MiB", None, 50, None)

    def task(self, slug, lane):
        return self.cmd("task", "create", "--repo", slug, "--lane", lane, "--title", PROMPT).strip()

    def state(self, task):
        return json.loads(self.cmd("task", "get", task, "--json"))["task"]["state"]

    def ended(self, task):
        deadline = time.monotonic() + 300
        while self.state(task) in ("queued", "claimed", "running"):
            if time.monotonic() > deadline:
                sys.exit(f"{task} did not end:\n{self.cmd('task', 'log', task)[-2000:]}")
            time.sleep(0.1)
        detail = json.loads(self.cmd("task", "get", task, "--json"))
        if detail["task"]["state"] != "review":
            sys.exit(f"{task} ended as {detail['task']['state']}:\n{self.cmd('task', 'log', task)[-2000:]}")
        return detail["runs"][0]

    def cmd(self, *argv, fails=False):
        done = subprocess.run([self.relay, *argv], env=self.relay_env, capture_output=True, text=True)
        if done.returncode and not fails:
            sys.exit(f"relay {' '.join(map(str, argv))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def git(self, *argv):
        subprocess.run(["git", *argv], env=self.env, check=True)


class Worker:
    def __init__(self, machine, argv):
        self.machine, self.argv = machine, argv

    def __enter__(self):
        log = open(self.machine.scratch / "work.log", "w")
        self.process = subprocess.Popen([self.machine.relay, *self.argv], env=self.machine.relay_env,
                                        stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not (self.machine.home / "relay.sock").exists():
            if time.monotonic() > deadline:
                sys.exit("the worker did not start:\n" + (self.machine.scratch / "work.log").read_text())
            time.sleep(0.05)
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


class Peak:
    """The highest sum of what a process and all below it hold, each page counted once."""

    def __init__(self, pid):
        self.pid, self.mib, self.over = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.over.wait(0.25):
            self.mib = max(self.mib, sum(proportional(pid) for pid in below(self.pid)))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def below(root):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def proportional(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        return 0


def resident(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def timed(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start
