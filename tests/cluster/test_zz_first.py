from tests.checker.traffic import Traffic
from tests.cluster.copies import *
from tests.cluster.running import Mm2py, one_way_properties
from tests.cluster.kafka_client import create_topic, new_name, record_count
from itertools import islice
import time

def test_first(source_cluster, target_cluster):
    t = new_name("codecs")
    create_topic(source_cluster, t, 3)
    stream = Traffic(1, 3).records()
    t0=time.time()
    for codec in ("none","gzip","snappy","lz4","zstd","none"):
        send(source_cluster, t, islice(stream, 2000), compression_type=codec)
    print("loaded", time.time()-t0)
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": t})) as m:
        t0=time.time()
        m.wait_until(lambda: record_count(target_cluster, "A."+t, range(3))==12000, "all")
        print("copied", time.time()-t0)
        assert m.terminate()==0
        print(m.text())
    t0=time.time()
    assert_copied(source_cluster, target_cluster, t, "A."+t)
    print("judged", time.time()-t0)
