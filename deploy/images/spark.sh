#!/bin/sh
# The entry point of the image for backfills. Spark on Kubernetes starts an executor by the word "executor" and the
# variables below; any other words are a command of mm2py.
set -eu
if [ "${1:-}" != executor ]; then exec mm2py "$@"; fi

spark=$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
# Options of the JVM come as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, one in each.
set --
number=0
while option=$(printenv "SPARK_JAVA_OPT_$number"); do
  set -- "$@" "$option"
  number=$((number + 1))
done
unset SPARK_LOCAL_IP
exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$spark/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
