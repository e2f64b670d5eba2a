"""Private names of PySpark, for functions that it does not offer. Checked with PySpark 4.2.

Most functions are those of the JVM: it must have started, and the session must be a classic one. Those with `connect`
in their name are for Spark Connect, which has no JVM in this process.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import DataFrame, SparkSession


def jvm(spark: SparkSession) -> JVMView:
    """Return the JVM, whose attributes are packages of Java. After its end, they raise `Py4JError` or `OSError`."""
    found = spark._jvm
    assert found is not None  # noqa: S101
    return found


def remember_classes(spark: SparkSession) -> None:
    """Store the classes that PySpark looks up again for each column, as attributes of the view of the JVM.

    Py4J has no cache of them. For a name without its package, the JVM searches all 280 jars for a class in each of
    several packages. These look-ups took 5 to 9 % of the samples of a JVM that plans queries with many expressions.
    A session of Spark Connect has no view of the JVM.
    """
    if not is_classic_session(spark):
        return
    view = jvm(spark)
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils"):
        setattr(view, name, getattr(view, name))


def end_jvm() -> None:
    """End the JVM that this process has started. Calls that wait for it fail."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.proc.terminate()


def java_session(spark: SparkSession) -> JavaObject:
    """Return the session of the JVM."""
    return spark._jsparkSession


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session has stopped. Raises `Py4JError` or `OSError` if the JVM has ended."""
    context = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def executors(spark: SparkSession) -> int:
    """Return the number of running executors, without the driver."""
    # The status contains the driver in addition to the executors.
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def connect_port(spark: SparkSession) -> int:
    """Return the port of Spark Connect. Raises `Py4JError` or `OSError` if it does not run."""
    service: Any = getattr(jvm(spark), "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def connect_session(client: object) -> SparkSession:
    """Return a session of Spark Connect that uses this client. Raises `ImportError` if a package is missing."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # Its own constructor would connect to a server.
    session: Any = ConnectSession.__new__(ConnectSession)
    session._client = client
    session._session_id = str(uuid.uuid4())
    session.release_session_on_close = False
    return session  # type: ignore[no-any-return]


def connect_client(session: SparkSession) -> Any:  # noqa: ANN401
    """Return the client of a session of Spark Connect."""
    return session._client  # type: ignore[attr-defined]


def connect_relation(frame: DataFrame, client: Any) -> Any:  # noqa: ANN401
    """Return the Protocol Buffers of a frame of Spark Connect."""
    plan: Any = frame._plan
    return plan.to_proto(client).root


def connect_checkpoint(session: SparkSession, name: str) -> DataFrame:
    """Return the frame of a stored result."""
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import CachedRemoteRelation

    used: Any = session
    return DataFrame(CachedRemoteRelation(name, used), used)


def is_classic_session(spark: object) -> bool:
    """Return whether a session has a JVM of this process."""
    from pyspark.sql import SparkSession as ClassicSession

    return isinstance(spark, ClassicSession)


def is_classic(frame: DataFrame) -> bool:
    """Return whether a frame belongs to a JVM of this process."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    return isinstance(frame, ClassicFrame)


def plan_text(frame: DataFrame) -> str:
    """Return the formatted plan, which PySpark itself only prints."""
    if not is_classic(frame):
        return str(frame._explain_string(mode="formatted"))  # type: ignore[operator]
    mode = jvm(frame.sparkSession).org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    return str(frame._jdf.queryExecution().explainString(mode))


def release(frame: DataFrame) -> None:
    """Free the rows of a local checkpoint, which nothing may read afterwards. Does nothing with Spark Connect.

    There, the server frees them when the frame of the client has gone.
    """
    from py4j.protocol import Py4JError

    # After the end of the JVM there is nothing to free.
    with contextlib.suppress(OSError, Py4JError):
        if is_classic(frame):
            frame._jdf.queryExecution().logical().rdd().unpersist(False)


def checkpoint_delta(spark: SparkSession, path: str) -> None:
    """Write a checkpoint of a Delta table's newest version."""
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path).checkpoint()


def is_delta_table(spark: SparkSession, path: str) -> bool:
    """Return whether a directory is a Delta table."""
    return bool(jvm(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), path))


def file_uri(spark: SparkSession, path: str) -> str:
    """Return the URI of a file or directory as Spark writes it in `_metadata.file_path`. `path`: absolute."""
    return str(jvm(spark).org.apache.hadoop.fs.Path(f"file:{path}").toUri().toString())


def open_file(spark: SparkSession, path: str) -> JavaObject:
    """Open a file of the JVM for reading and writing (`java.io.RandomAccessFile`). Raises `Py4JJavaError`."""
    return jvm(spark).java.io.RandomAccessFile(path, "rw")


def try_lock(file: JavaObject) -> bool:
    """Lock a file of `open_file` exclusively, if no other process and no other part of this one has locked it."""
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error.java_exception.getClass()):
            return False
        raise
