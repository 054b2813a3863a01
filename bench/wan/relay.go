// A long link between two TUN devices, whose file descriptors are the arguments after the seed: source's, target's.
//
// Each direction is a queue of limited size in front of a link of limited rate, then a delay with jitter. Packets keep
// their order, but for a share that others overtake; a share comes twice. Standard input has one line of JSON for each
// change of the link; each is answered by one line with what was counted so far. The relay ends with its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type link struct {
	BytesPerSecond float64 `json:"bytes_per_s"` // 0: without limit
	QueueBytes     float64 `json:"queue_bytes"`
	DelayNs        int64   `json:"delay_ns"`
	JitterNs       int64   `json:"jitter_ns"`
	Loss           float64 `json:"loss"`
	Overtaken      float64 `json:"overtaken"` // a share of packets, by those of the next OvertakenNs
	OvertakenNs    int64   `json:"overtaken_ns"`
	Twice          float64 `json:"twice"` // a share of packets
	Cut            [2]bool `json:"cut"` // from the source, from the target
}

type packet struct {
	dueNs int64
	bytes []byte
}

type counts struct {
	Passed, Bytes, Lost, Overflowed, Cut atomic.Int64
}

var (
	now   atomic.Pointer[link]
	start = time.Now()
	seen  [2]counts
	spare = sync.Pool{New: func() any { return make([]byte, 2048) }}
)

func take(from int, to int, way int, seed int64, out chan<- packet) {
	random := rand.New(rand.NewSource(seed))
	var freeNs, lastNs int64
	for {
		buffer := spare.Get().([]byte)[:2048]
		size, err := syscall.Read(from, buffer)
		if err == syscall.EINTR {
			continue
		} else if err != nil {
			log.Fatal("reading a TUN device: ", err)
		}
		is := now.Load()
		lost, jitter := random.Float64() < is.Loss, random.Float64()
		overtaken, twice := random.Float64() < is.Overtaken, random.Float64() < is.Twice
		atNs := int64(time.Since(start))
		freeNs = max(freeNs, atNs)
		waiting := float64(freeNs-atNs) / 1e9 * is.BytesPerSecond
		switch {
		case is.Cut[way]:
			seen[way].Cut.Add(1)
		case lost:
			seen[way].Lost.Add(1)
		case is.BytesPerSecond > 0 && waiting+float64(size) > is.QueueBytes:
			seen[way].Overflowed.Add(1)
		default:
			if is.BytesPerSecond > 0 {
				freeNs += int64(float64(size) / is.BytesPerSecond * 1e9)
			}
			lastNs = max(lastNs, freeNs+is.DelayNs+int64(jitter*float64(is.JitterNs)))
			if twice {
				out <- packet{lastNs, append(spare.Get().([]byte)[:0], buffer[:size]...)}
			}
			if overtaken {
				one := packet{lastNs + is.OvertakenNs, buffer[:size]}
				time.AfterFunc(time.Duration(one.dueNs)-time.Since(start), func() { give(to, way, one) })
			} else {
				out <- packet{lastNs, buffer[:size]}
			}
			continue
		}
		spare.Put(buffer)
	}
}

func give(to int, way int, one packet) {
	if now.Load().Cut[way] { // what is on a link when it is cut is lost
		seen[way].Cut.Add(1)
	} else if _, err := syscall.Write(to, one.bytes); err != nil {
		log.Print("writing to a TUN device: ", err)
	} else {
		seen[way].Passed.Add(1)
		seen[way].Bytes.Add(int64(len(one.bytes)))
	}
	spare.Put(one.bytes[:2048])
}

func giveInOrder(to int, way int, in <-chan packet) {
	for one := range in {
		if wait := time.Duration(one.dueNs) - time.Since(start); wait > 0 {
			time.Sleep(wait)
		}
		give(to, way, one)
	}
}

func main() {
	var seed int64
	var devices [2]int
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &seed, &devices[0], &devices[1]); err != nil {
		log.Fatal("usage: relay SEED DEVICE DEVICE: ", err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for first := true; lines.Scan(); first = false {
		next := new(link)
		if err := json.Unmarshal(lines.Bytes(), next); err != nil {
			log.Fatal(err)
		}
		now.Store(next)
		if first {
			for way := range 2 {
				between := make(chan packet, 1<<17)
				go take(devices[way], devices[1-way], way, seed+int64(way), between)
				go giveInOrder(devices[1-way], way, between)
			}
		}
		for way := range 2 {
			one := &seen[way]
			fmt.Print(one.Passed.Load(), " ", one.Bytes.Load(), " ", one.Lost.Load(), " ",
				one.Overflowed.Load(), " ", one.Cut.Load(), " ")
		}
		fmt.Println()
	}
}
