# SPDX-License-Identifier: Apache-2.0
"""The modules of horovod.runner that other programs import: names, texts and behaviour."""

import importlib
import inspect
import io
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import horovod
import pytest
from horovod.runner import gloo_run, js_run, launch, mpi_run
from horovod.runner.common.util import (
    config_parser,
    env,
    host_hash,
    hosts,
    safe_shell_exec,
    secret,
    settings,
    timeout,
    tiny_shell_exec,
)
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util import cache, network, remote, streams, threads

NAMES = {
    "launch": "parse_args run_commandline run_controller is_gloo_used check_build _run _run_static "
    "_run_elastic _is_elastic _launch_job make_check_build_action make_override_action "
    "make_override_bool_action make_override_true_action make_override_false_action "
    "make_deprecated_bool_action make_nic_action CACHE_FOLDER CACHE_STALENESS_THRESHOLD_MINUTES "
    "SSH_ATTEMPTS SSH_CONNECT_TIMEOUT_S",
    "gloo_run": "gloo_run launch_gloo gloo_run_elastic launch_gloo_elastic create_run_env_vars "
    "create_slot_env_vars get_run_command register_shutdown_event MultiFile _pad_rank _mkdir_p "
    "_exec_command_fn _slot_info_to_command_fn",
    "mpi_run": "mpi_run mpi_available is_open_mpi is_spectrum_mpi is_mpich is_intel_mpi "
    "_get_mpi_implementation _get_mpi_implementation_flags _OMPI_IMPL _SMPI_IMPL _MPICH_IMPL "
    "_IMPI_IMPL _UNKNOWN_IMPL _MISSING_IMPL _LARGE_CLUSTER_THRESHOLD _OMPI_FLAGS _SMPI_FLAGS "
    "_SMPI_FLAGS_TCP _MPICH_FLAGS _IMPI_FLAGS _NO_BINDING_ARGS _SOCKET_BINDING_ARGS "
    "_MPI_NOT_FOUND_ERROR_MSG",
    "js_run": "js_run is_jsrun_installed generate_jsrun_rankfile",
    "run_task": "main",
    "util.lsf": "LSFUtils",
    "util.network": "get_driver_ip get_local_intfs filter_local_addresses resolve_host_address "
    "find_port",
    "util.remote": "get_ssh_command get_remote_command SSH_COMMAND_PREFIX",
    "util.streams": "Pipe",
    "util.threads": "in_thread on_event execute_function_multithreaded",
    "util.cache": "use_cache Cache",
    "common.util.codec": "dumps_base64 loads_base64",
    "common.util.config_parser": "set_env_from_args set_args_from_config validate_config_args "
    "LOG_LEVELS",
    "common.util.env": "IGNORE_REGEXES is_exportable is_kubeflow_mpi KUBEFLOW_MPI_EXEC "
    "LOG_LEVEL_STR get_env_rank_and_size",
    "common.util.hosts": "HostInfo SlotInfo INVALID_SLOT_INFO parse_hosts parse_host_files "
    "parse_hosts_and_slots get_host_assignments",
    "common.util.network": "AckResponse PingRequest PingResponse BasicService BasicClient Wire",
    "common.util.safe_shell_exec": "execute terminate_executor_shell_and_children "
    "GRACEFUL_TERMINATION_TIME_S prefix_connection",
    "common.util.secret": "HOROVOD_SECRET_KEY SECRET_LENGTH DIGEST_LENGTH make_secret_key "
    "compute_digest check_digest",
    "common.util.settings": "BaseSettings Settings",
    "common.util.timeout": "Timeout TimeoutException",
    "common.util.host_hash": "host_hash _hash NAMESPACE_PATH",
    "http.http_server": "KVStoreHandler KVStoreHTTPServer KVStoreServer RendezvousHandler "
    "RendezvousHTTPServer RendezvousServer SINGLE_REQUEST_TIMEOUT TIMEOUT BAD_REQUEST",
    "http.http_client": "read_data_from_kvstore put_data_into_kvstore",
    "elastic.constants": "RESET_LIMIT_EXCEEDED_MESSAGE",
    "elastic.settings": "ElasticSettings",
    "elastic.discovery": "HostState DiscoveredHosts HostManager HostDiscovery HostDiscoveryScript "
    "FixedHosts DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS",
    "elastic.driver": "ElasticDriver Results ResultsRecorder DISCOVER_HOSTS_FREQUENCY_SECS "
    "ELASTIC_TIMEOUT_SECS",
    "elastic.registration": "WorkerStateRegistry READY SUCCESS FAILURE",
    "elastic.rendezvous": "create_rendezvous_handler GET_RANK_AND_SIZE PUT_WORKER_ADDRESSES",
    "elastic.worker": "HostUpdateResult HostsUpdatedRequest WorkerNotificationManager "
    "WorkerNotificationService WorkerNotificationClient HOROVOD_GLOO_RENDEZVOUS_ADDR "
    "HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_GLOO_IFACE HOROVOD_HOSTNAME HOROVOD_LOCAL_RANK",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    loaded = importlib.import_module(f"horovod.runner.{module}")
    assert [name for name in NAMES[module].split() if not hasattr(loaded, name)] == []


# ---- hosts ----


def test_hosts():
    assert hosts.parse_hosts("a:2, b.c-d:13") == [
        hosts.HostInfo("a", 2),
        hosts.HostInfo("b.c-d", 13),
    ]
    assert hosts.parse_hosts_and_slots("a:2,b:3") == (["a", "b"], {"a": 2, "b": 3})
    for text in ("", "a", "a:", "a:x", "a:1,", "a b:1", "a:1;b:1"):
        with pytest.raises(ValueError, match="^Invalid host input, please make sure it has format"):
            hosts.parse_hosts(text)


def test_host_file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# mine\n\na slots=2\nb slots = 3 max-slots=9\nc # one\nd:4\n")
    assert hosts.parse_host_files(path) == "a:2,b:3,c:1,d:4"
    path.write_text("\n")
    with pytest.raises(ValueError, match="Invalid host input"):
        hosts.parse_host_files(path)


def test_assignments():
    slots = hosts.get_host_assignments(hosts.parse_hosts("a:2,b:1,c:3"), 5, 5)
    assert [s.to_response_string() for s in slots] == [
        "0,5,0,2,0,3",
        "1,5,1,2,0,2",
        "2,5,0,1,1,3",
        "3,5,0,2,2,3",
        "4,5,1,2,1,2",
    ]
    assert [s.hostname for s in slots] == ["a", "a", "b", "c", "c"]
    text = r"^Requested more processes \(7\) than there are available slots \(6\)$"
    with pytest.raises(ValueError, match=text):
        hosts.get_host_assignments(hosts.parse_hosts("a:2,b:1,c:3"), 7)
    assert hosts.INVALID_SLOT_INFO.to_response_string() == "-1,-1,-1,-1,-1,-1"


# ---- small things ----


def test_timeout():
    with pytest.raises(
        timeout.TimeoutException, match=r"^waiting for x\. Timeout after 0 seconds\.$"
    ):
        timeout.Timeout(0, "waiting for {activity}").check_time_out_for("x")
    limit = timeout.Timeout(60, "never")
    limit.check_time_out_for("x")
    assert not limit.timed_out() and 50 < limit.remaining() <= 60


def test_host_hash():
    assert host_hash._hash("test string") == "6f8db599de986fab7a21625b7916589c"
    assert host_hash.host_hash() == host_hash.host_hash() != host_hash.host_hash("salt")


def test_secret():
    key = secret.make_secret_key()
    digest = secret.compute_digest(key, b"x")
    assert len(digest) == secret.DIGEST_LENGTH and len(key) == secret.SECRET_LENGTH
    assert secret.check_digest(key, b"x", digest) and not secret.check_digest(key, b"y", digest)


def test_settings_do_not_show_the_key():
    key = secret.make_secret_key()
    text = repr(settings.Settings(hosts="a:1", num_proc=1, key=key))
    assert "a:1" in text and repr(key) not in text


def test_exportable():
    for name in ("OLDPWD", "BASH_FUNC_x", "CUDA_VISIBLE_DEVICES", "XCUDA_VISIBLE_DEVICES"):
        assert not env.is_exportable(name)
    for name in ("_HOROVOD_SECRET_KEY", "HOROVOD_KEY", "HOROVOD_KEY_FD"):
        assert not env.is_exportable(name)
    assert env.is_exportable("PATH")


def test_rank_and_size(monkeypatch):
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(RuntimeError, match="PMI_SIZE"):
        env.get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "3")
    assert env.get_env_rank_and_size() == (1, 3)


def test_ssh_command(monkeypatch):
    monkeypatch.delenv("OMPI_MCA_plm_rsh_agent", raising=False)
    assert remote.get_remote_command("true", "h", 22, "/k", 10) == (
        "ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=accept-new h -p 22 -i /k "
        "-o ConnectTimeout=10 true"
    )
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh")
    assert remote.get_remote_command("true", "h", 22) == "/etc/mpi/kubexec.sh h true"


def test_local_addresses():
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert network.filter_local_addresses(["localhost", "no.such.host.invalid"]) == [
        "no.such.host.invalid"
    ]
    assert network.get_driver_ip({"lo"}) == "127.0.0.1"


def test_pipe():
    pipe = streams.Pipe()
    pipe.write("abc")
    assert pipe.read(2) == "ab" and pipe.read() == "c"
    pipe.write("d")
    pipe.close()
    assert pipe.read() == "d" and pipe.read() is None and pipe.read() is None


def test_threads():
    assert threads.execute_function_multithreaded(lambda a, b: a + b, [[1, 2], [3, 4]]) == {
        0: 3,
        1: 7,
    }
    event, called = threading.Event(), []
    thread = threads.on_event(event, called.append, args=(1,))
    event.set()
    thread.join(10)
    assert called == [1]


def test_cache_is_json(tmp_path):
    calls = []

    @cache.use_cache()
    def ask(x):
        calls.append(x)
        return [x]

    kept = cache.Cache(tmp_path, 60, "hash")
    assert ask(1, fn_cache=kept) == ask(1, fn_cache=kept) == [1]
    assert ask(1, fn_cache=cache.Cache(tmp_path, 60, "hash")) == [1]
    assert calls == [1]
    ask(1, fn_cache=cache.Cache(tmp_path, 60, "other"))
    assert calls == [1, 1]
    path = next(tmp_path.glob("*.json"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"\x80garbage")
    assert ask(1, fn_cache=cache.Cache(tmp_path, 60, "hash")) == [1]


# ---- shell ----


def test_shell():
    output, code = tiny_shell_exec.execute("echo out; echo err >&2; exit 3")
    assert (sorted(output.splitlines()), code) == (["err", "out"], 3)
    assert tiny_shell_exec.execute("kill -9 $$")[1] == 137
    out = io.StringIO()
    assert safe_shell_exec.execute(r"printf 'a\rb\nc'", stdout=out, index=2) == 0
    assert out.getvalue() == "[2]<stdout>:a\r[2]<stdout>:b\n[2]<stdout>:c"
    assert tiny_shell_exec.execute("echo $X", env={"X": "y z"})[0] == "y z\n"


def test_shell_tree_ends_with_the_event(tmp_path, monkeypatch):
    monkeypatch.setattr(safe_shell_exec, "GRACEFUL_TERMINATION_TIME_S", 1)
    mark = tmp_path / "pid"
    event = threading.Event()

    def set_when_up():
        while not mark.exists() or not mark.read_text().strip():
            time.sleep(0.01)
        event.set()

    threading.Thread(target=set_when_up, daemon=True).start()
    script = f"(trap '' TERM; sh -c 'echo $$ > {mark}; trap \"\" TERM; while :; do sleep 1; done')"
    assert safe_shell_exec.execute(script, events=[event]) == 137
    pid = int(mark.read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and not safe_shell_exec._is_over(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_shell_event_can_be_replaced(monkeypatch):
    """Tests of other programs end a command by the event that execute() makes for itself."""
    event = threading.Event()
    monkeypatch.setattr(safe_shell_exec, "_create_event", lambda ctx: event)
    monkeypatch.setattr(safe_shell_exec, "GRACEFUL_TERMINATION_TIME_S", 1)
    threading.Timer(0.3, event.set).start()
    assert safe_shell_exec.execute("sleep 300") != 0


def test_shell_tree_ends_with_its_caller(tmp_path):
    mark = tmp_path / "pid"
    script = tmp_path / "caller.py"
    script.write_text(
        "from horovod.runner.common.util import safe_shell_exec\n"
        f"safe_shell_exec.execute('echo $$ > {mark}; sleep 300')\n"
    )
    caller = subprocess.Popen([sys.executable, script])
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    pid = int(mark.read_text())
    deadline = time.monotonic() + 60
    while not safe_shell_exec._is_over(pid):
        assert time.monotonic() < deadline, "the command survived its caller"
        time.sleep(0.02)


# ---- launch ----


def test_parse_args(tmp_path):
    pytest.importorskip("yaml")
    config = tmp_path / "config.yaml"
    config.write_text(
        "controller: MPI\nparams:\n  cycle_time_ms: 5\n  fusion_threshold_mb: 3\n"
        "stall_check:\n  enabled: false\nlogging:\n  level: INFO\nunknown: 1\n"
    )
    args = launch.parse_args(
        ["-np", "2", "--cycle-time-ms", "20", "--slots", "4", "--config-file", str(config)]
        + ["--network-interfaces", "a,b", "-H", "h:2", "python", "x.py", "-np", "9"]
    )
    assert (args.num_proc, args.cycle_time_ms, args.fusion_threshold_mb) == (2, 20.0, 3)
    assert (args.use_mpi, args.use_gloo, args.no_stall_check) == (True, False, True)
    assert (args.slots, args.nics, args.hosts) == (4, {"a", "b"}, "h:2")
    assert args.command == ["python", "x.py", "-np", "9"]
    assert (args.run_func, args.executable, args.autotune) == (None, None, None)
    variables = config_parser.set_env_from_args({"HOROVOD_LOG_HIDE_TIME": "0"}, args)
    assert variables == {
        "HOROVOD_LOG_HIDE_TIME": "0",
        "HOROVOD_CYCLE_TIME": "20.0",
        "HOROVOD_FUSION_THRESHOLD": "3145728",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "INFO",
    }


def test_parse_args_refuses():
    for argv in (
        [],
        ["-np", "x"],
        ["-np", "1", "--gloo", "--mpi"],
        ["-np", "1", "-H", "a", "--hostfile", "b"],
    ):
        with pytest.raises(SystemExit) as caught:
            launch.parse_args(argv)
        assert caught.value.code == 2
    with pytest.raises(ValueError, match=r"^fusion_threshold_mb=-1 must be >= 0$"):
        launch.parse_args(["-np", "1", "--fusion-threshold-mb", "-1"])
    with pytest.raises(ValueError, match=r"=2.0 must be in \[0, 1\]$"):
        launch.parse_args(["-np", "1", "--autotune-gaussian-process-noise", "2"])


def test_run_controller():
    for gloo, mpi, lsf, jsrun in itertools.product((True, False), repeat=4):
        with (
            mock.patch("horovod.runner.launch.gloo_built", return_value=gloo),
            mock.patch("horovod.runner.launch.mpi_built", return_value=mpi),
            mock.patch("horovod.runner.util.lsf.LSFUtils.using_lsf", return_value=lsf),
            mock.patch("horovod.runner.launch.is_jsrun_installed", return_value=jsrun),
        ):
            for asked in ("gloo", "mpi", "jsrun", None):
                assert choice(asked) == expected(asked, gloo, mpi, lsf, jsrun)


def choice(asked):
    called = []
    try:
        launch.run_controller(
            asked == "gloo",
            lambda: called.append("gloo"),
            asked == "mpi",
            lambda: called.append("mpi"),
            asked == "jsrun",
            lambda: called.append("jsrun"),
            0,
        )
    except ValueError as error:
        return str(error).split()[0]
    return called[0]


def expected(asked, gloo, mpi, lsf, jsrun):
    if asked == "gloo":
        return "gloo" if gloo else "Gloo"
    if asked == "mpi":
        return "mpi" if mpi else "MPI"
    if asked == "jsrun":
        return "MPI" if not mpi else "jsrun" if lsf else "Horovod"
    if mpi:
        return "jsrun" if lsf and jsrun else "mpi"
    return "gloo" if gloo else "Neither"


def test_module_is_the_native_launcher():
    command = [sys.executable, "-m", "horovod.runner.launch"]
    done = subprocess.run([*command, "-v"], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == horovod.__version__
    done = subprocess.run(
        [*command, "-np", "1", "sh", "-c", "exit 3"], capture_output=True, timeout=300
    )
    assert done.returncode == 3


# ---- other launchers ----

MPI_LINES = {
    "OpenMPI": "mpirun --allow-run-as-root --tag-output -np 2 -H a:1,b:1 -bind-to none "
    "-map-by slot -mca pml ob1 -mca btl ^openib  -mca btl_tcp_if_include eth0,eth1 "
    "-x NCCL_SOCKET_IFNAME=eth0,eth1  -x A -x B  cmd 'x y'",
    "SpectrumMPI": "mpirun --allow-run-as-root --tag-output -np 2 -H a:1,b:1 -bind-to socket "
    "-map-by socket -rank-by core   -mca btl_tcp_if_include eth0,eth1 "
    "-x NCCL_SOCKET_IFNAME=eth0,eth1  -x A -x B  cmd 'x y'",
    "MPICH": "mpirun -l -np 2 -ppn 1 -hosts a,b -bind-to none -map-by slot   -iface eth0 "
    "-genv NCCL_SOCKET_IFNAME=eth0,eth1    cmd 'x y'",
    "IntelMPI": "mpirun -l -np 2 -ppn 1 -hosts a,b    -iface eth0 "
    "-genv NCCL_SOCKET_IFNAME=eth0,eth1    cmd 'x y'",
}


@pytest.mark.parametrize("implementation", MPI_LINES)
def test_mpirun_line(implementation):
    with mock.patch("horovod.runner.mpi_run._get_mpi_implementation", return_value=implementation):
        flags, binding, name = mpi_run._get_mpi_implementation_flags(False)
    line = mpi_run.build_command(
        settings.Settings(hosts="a:1,b:1", num_proc=2),
        ["eth1", "eth0"],
        {"B": "1", "A": "2", "HOROVOD_KEY": "3"},
        ["cmd", "x y"],
        name,
        flags,
        binding,
    )
    assert line == MPI_LINES[implementation]


def test_mpirun_implementation():
    for text, expected_name in (
        ("mpirun (Open MPI) 4.1.4", "OpenMPI"),
        ("HYDRA build details:", "MPICH"),
        ("Intel(R) MPI Library for Linux", "IntelMPI"),
        ("something else", "Unknown"),
    ):
        with mock.patch(
            "horovod.runner.common.util.tiny_shell_exec.execute", return_value=(text, 0)
        ):
            assert mpi_run._get_mpi_implementation() == expected_name
    with mock.patch("horovod.runner.common.util.tiny_shell_exec.execute", return_value=("", 127)):
        assert not mpi_run.mpi_available()
        with pytest.raises(Exception, match="^horovod does not find an installed MPI"):
            mpi_run.mpi_run(settings.Settings(hosts="a:1", num_proc=1), None, {}, ["x"])
    with pytest.raises(Exception, match="^env argument must be a dict, not "):
        mpi_run.mpi_run(settings.Settings(hosts="a:1", num_proc=1), None, "env", ["x"])


def test_rank_file(tmp_path, monkeypatch):
    monkeypatch.setenv("LSB_MCPU_HOSTS", "a 4 b 4")
    monkeypatch.setenv("HOROVOD_LSF_GPUS", "2")
    path = js_run.generate_jsrun_rankfile(
        settings.Settings(hosts="a:2,b:2", num_proc=3), tmp_path / "ranks"
    )
    assert path.read_text() == (
        "overlapping_rs: allow\ncpu_index_using: logical\n"
        "\nrank: 0: { hostname: a; cpu: {0-1} ; gpu: * ; mem: * }\n"
        "rank: 1: { hostname: a; cpu: {2-3} ; gpu: * ; mem: * }\n"
        "\nrank: 2: { hostname: b; cpu: {0-1} ; gpu: * ; mem: * }\n"
    )
    with pytest.raises(ValueError):
        js_run.generate_jsrun_rankfile(settings.Settings(hosts="a:3", num_proc=3), path)


PROGRAM = (
    "import sys; from horovod.common.library import native; native.init(None, []); "
    "sys.stdout.write(f'place {native.rank()} {native.size()}\\n'); native.shutdown()"
)


def test_gloo_run(capsys):
    plan = settings.Settings(hosts="localhost:2", num_proc=2)
    gloo_run.gloo_run(plan, None, None, None, [sys.executable, "-c", PROGRAM])
    out = capsys.readouterr().out
    assert "[0]<stdout>:place 0 2" in out and "[1]<stdout>:place 1 2" in out
    with pytest.raises(RuntimeError, match="Process name: 0\nExit code: 3"):
        gloo_run.gloo_run(
            plan, None, None, None, ["sh", "-c", "[ $HOROVOD_RANK = 0 ] && exit 3; sleep 600"]
        )


def test_slot_of_another_machine_is_not_started_here():
    plan = settings.Settings(hosts="192.0.2.7:1", num_proc=1)
    slot = hosts.get_host_assignments(hosts.parse_hosts(plan.hosts), 1)[0]
    with pytest.raises(RuntimeError, match="192.0.2.7 is another machine"):
        gloo_run._exec_command_fn(plan)("true", slot, [])


def test_launch_gloo(capsys):
    plan = settings.Settings(hosts="localhost:3", num_proc=2)
    exec_command = gloo_run._exec_command_fn(plan)
    gloo_run.launch_gloo(
        [sys.executable, "-c", PROGRAM], exec_command, plan, {"lo"}, {}, "127.0.0.1"
    )
    out = capsys.readouterr().out
    assert "[0]<stdout>:place 0 2" in out and "[1]<stdout>:place 1 2" in out
    with pytest.raises(RuntimeError, match="Process name: 1\nExit code: 4"):
        gloo_run.launch_gloo(
            ["sh", "-c", "[ $HOROVOD_RANK = 1 ] && exit 4; sleep 600"],
            exec_command,
            plan,
            None,
            {},
            "127.0.0.1",
        )


def test_launcher_of_somebody_else(tmp_path):
    """What TonY, ElasticDL and others do: a RendezvousServer, and the documented variables."""
    script = tmp_path / "launcher.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts\n"
        "from horovod.runner.http.http_server import RendezvousServer\n"
        "server = RendezvousServer(verbose=0)\n"
        "port = server.start()\n"
        "plan = get_host_assignments(parse_hosts('localhost:2'), 2)\n"
        "server.init(plan)\n"
        "ranks = []\n"
        "for slot in plan:\n"
        "    env = dict(os.environ, HOROVOD_GLOO_RENDEZVOUS_ADDR='127.0.0.1',\n"
        "               HOROVOD_GLOO_RENDEZVOUS_PORT=str(port), HOROVOD_CONTROLLER='gloo',\n"
        "               HOROVOD_CPU_OPERATIONS='gloo', HOROVOD_HOSTNAME=slot.hostname,\n"
        "               HOROVOD_RANK=str(slot.rank), HOROVOD_SIZE=str(slot.size),\n"
        "               HOROVOD_LOCAL_RANK=str(slot.local_rank),\n"
        "               HOROVOD_LOCAL_SIZE=str(slot.local_size),\n"
        "               HOROVOD_CROSS_RANK=str(slot.cross_rank),\n"
        "               HOROVOD_CROSS_SIZE=str(slot.cross_size))\n"
        f"    ranks.append(subprocess.Popen([sys.executable, '-c', {PROGRAM!r}], env=env))\n"
        "codes = [rank.wait(60) for rank in ranks]\n"
        "server.stop()\n"
        "assert codes == [0, 0] and 'HOROVOD_KEY' not in os.environ, codes\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == ["place 0 2", "place 1 2"]


def test_rendezvous_listens_on_the_way_to_other_hosts():
    server = RendezvousServer()
    port = server.start()
    try:
        server.init([hosts.SlotInfo("127.0.0.9", 0, 0, 0, 1, 1, 1)])
        listens = server._server.listens
        assert listens == {"127.0.0.1"} or network.route_to("127.0.0.9") in listens
        assert port > 0 and len(server.key) == 32
    finally:
        server.stop()


ABSENT = [
    ("common.service.driver_service", "BasicDriverService", "native program"),
    ("common.service.task_service", "BasicTaskService", "native program"),
    ("task.task_service", "HorovodRunTaskService", "native program"),
    ("task_fn", "_task_fn", "native program"),
    ("driver.driver_service", "HorovodRunDriverService", "does not exist"),
]


@pytest.mark.parametrize("module, name, reason", ABSENT)
def test_absent_names_say_why(module, name, reason):
    loaded = importlib.import_module(f"horovod.runner.{module}")
    assert not hasattr(loaded, name)
    assert getattr(loaded, name, 7) == 7
    with pytest.raises(AttributeError, match=reason):
        getattr(loaded, name)
    with pytest.raises(AttributeError, match=reason):
        eval(f"loaded.{name}")
    with pytest.raises(ImportError, match=reason):
        exec(f"from horovod.runner.{module} import {name}")
    with pytest.raises(ImportError, match=reason):
        exec(f"import os; from horovod.runner.{module} import __name__, {name} as other")
    inspect.getmembers(loaded)  # asks for names that modules may have, or not


def test_interfaces_of_a_job():
    from horovod.runner.driver import driver_service

    plan = settings.Settings(hosts="localhost:1", num_proc=1)
    assert driver_service.get_common_interfaces(plan, ["localhost"]) == {"lo"}
    plan.nics = {"eth7"}
    assert driver_service.get_common_interfaces(plan, ["a", "b"]) == {"eth7"}
    with pytest.raises(ValueError, match="eth7"):
        driver_service.get_local_interfaces(plan)


def test_names_that_clients_import():
    from horovod.runner import _HorovodArgs
    from horovod.runner.elastic.worker import HOROVOD_GLOO_RENDEZVOUS_PORT, HOROVOD_LOCAL_RANK
    from horovod.runner.gloo_run import get_host_assignments, parse_hosts

    assert HOROVOD_GLOO_RENDEZVOUS_PORT == "HOROVOD_GLOO_RENDEZVOUS_PORT"
    assert HOROVOD_LOCAL_RANK == "HOROVOD_LOCAL_RANK"
    slots = get_host_assignments(parse_hosts("a:1,b:2"), 3)
    assert [(slot.hostname, slot.rank) for slot in slots] == [("a", 0), ("b", 1), ("b", 2)]
    options, parsed = _HorovodArgs(), launch.parse_args(["-np", "1", "true"])
    assert set(vars(parsed)) <= set(vars(options))
    for name, value in vars(parsed).items():
        assert name == "command" or getattr(options, name) == value, name
    assert options.cycle_time_ms is None and options.cache_capacity is None


def test_options_run_a_command_and_a_function(tmp_path):
    from horovod.runner import _HorovodArgs

    options = _HorovodArgs()
    options.num_proc = 2
    options.use_gloo = True
    options.command = [sys.executable, "-c", WRITE_RANK.format(str(tmp_path))]
    launch._run(options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    options = _HorovodArgs()
    options.num_proc = 2
    options.use_gloo = True
    options.cycle_time_ms = 2.5
    options.run_func = lambda: (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_CYCLE_TIME"])
    assert launch._run(options) == [("0", "2.5"), ("1", "2.5")]


WRITE_RANK = "import os, pathlib; pathlib.Path({!r}, os.environ['HOROVOD_RANK']).touch()"
