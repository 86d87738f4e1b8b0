"""A real HDFS on loopback: one NameNode and one DataNode, as processes that end with the tests."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.servers import STARTUP_SECONDS, free_port
from tools.hdfs_jars import FOLDER, is_ready

_PACKAGE = "org.apache.hadoop.hdfs.server"
_LIVE_NODES = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


def why_no_hdfs() -> str | None:
    """Why HDFS cannot run here; None if it can. Tests download nothing."""
    if shutil.which("java") is None:
        return "HDFS needs Java"
    return None if is_ready() else "the jars of HDFS are not installed (make hdfs)"


@dataclass(slots=True)
class HdfsServer:
    """A NameNode and a DataNode, which tests may kill and start again."""

    folder: Path
    ports: Mapping[str, int]
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.ports['rpc']}"

    def start(self, node: str) -> None:
        """Start a node: "namenode.NameNode" or "datanode.DataNode"."""
        with (self.folder / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                self._java(node),
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, node: str) -> None:
        """End a node as kill -9 does."""
        process = self.processes.pop(node)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def format(self) -> None:
        arguments = ["-format", "-nonInteractive", "-force"]
        subprocess.run(
            [*self._java("namenode.NameNode"), *arguments],
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )

    def wait(self) -> None:
        """Wait until the DataNode has registered and blocks can be read and written."""
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            if self._live_nodes() == 1:
                return
            time.sleep(0.1)
        raise RuntimeError(f"HDFS does not start; see {self.folder}/*.log")

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def _live_nodes(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=5)
        try:
            connection.request("GET", _LIVE_NODES)
            beans = json.loads(connection.getresponse().read())["beans"]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return 0
        else:
            return int(beans[0]["NumLiveDataNodes"]) if beans and beans[0]["FSState"] == "Operational" else 0
        finally:
            connection.close()

    def _java(self, node: str) -> list[str]:
        class_path = [str(self.folder / "conf"), *map(str, sorted(FOLDER.glob("*.jar")))]
        memory = ["-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"]
        return ["java", *memory, "-cp", os.pathsep.join(class_path), f"{_PACKAGE}.{node}"]


@contextlib.contextmanager
def running_hdfs(folder: Path) -> Iterator[HdfsServer]:
    names = ("rpc", "http", "data", "data_http", "data_ipc")
    server = HdfsServer(folder, {name: free_port() for name in names})
    _configure(server)
    try:
        server.format()
        server.start("namenode.NameNode")
        server.start("datanode.DataNode")
        server.wait()
        yield server
    finally:
        server.stop()


def _configure(server: HdfsServer) -> None:
    conf, ports = server.folder / "conf", server.ports
    for node in ("hdfs", "datanode"):
        page = conf / "webapps" / node / "WEB-INF" / "web.xml"
        page.parent.mkdir(parents=True)
        page.write_text("<web-app></web-app>")
    _write_settings(
        conf / "core-site.xml", {"fs.defaultFS": server.url, "hadoop.tmp.dir": f"{server.folder}/tmp"}
    )
    _write_settings(
        conf / "hdfs-site.xml",
        {
            "dfs.replication": "1",
            "dfs.permissions.enabled": "true",
            "dfs.webhdfs.enabled": "false",
            "dfs.namenode.rpc-address": f"127.0.0.1:{ports['rpc']}",
            "dfs.namenode.http-address": f"127.0.0.1:{ports['http']}",
            "dfs.datanode.address": f"127.0.0.1:{ports['data']}",
            "dfs.datanode.http.address": f"127.0.0.1:{ports['data_http']}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{ports['data_ipc']}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.name.dir": f"file://{server.folder}/name",
            "dfs.datanode.data.dir": f"file://{server.folder}/data",
            "dfs.datanode.du.reserved": "0",
        },
    )


def _write_settings(path: Path, settings: Mapping[str, str]) -> None:
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    path.write_text(f"<configuration>{properties}</configuration>")


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP", "JAVA_TOOL"))}
