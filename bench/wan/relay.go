// A long link between two TUN devices, whose file descriptors are the arguments after the seed: source's, target's.
//
// Each direction is a queue of limited size in front of a link of limited rate, then a delay with jitter. Packets keep
// their order, but for a share that others overtake; a share comes twice. Standard input has one line of JSON for each
// change of the link; each is answered by one line with what was counted so far. The relay ends with its standard input.
//
// Over a fast link without faults the kernel hands over many TCP segments as one packet, as it does to network cards.
// Otherwise the relay would take more CPU than all brokers together, and would be what is measured.
package main

import (
	"bufio"
	"encoding/binary"
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
	Cut            [2]bool `json:"cut"`   // from the source, from the target
}

const (
	headBytes  = 10 // virtio_net_hdr before each packet
	smallBytes = 2048
	mostBytes  = headBytes + 1<<16
	setOffload = 0x400454d0             // TUNSETOFFLOAD
	joined     = 0x03                   // TUN_F_CSUM | TUN_F_TSO4
	grain      = 500 * time.Microsecond // a sleep for each packet would take most of a core
	restLooks  = 40                     // looks in vain, half a grain apart, before a device is waited for
	tcpIPBytes = 52                     // before the data of a segment: IPv4, TCP with timestamps
)

// joins tells whether segments may come as one packet: nothing is to happen to single ones.
func (is *link) joins() bool {
	return is.Loss == 0 && is.Overtaken == 0 && is.Twice == 0 && is.QueueBytes >= 1e6 &&
		(is.BytesPerSecond == 0 || is.BytesPerSecond >= 1e7)
}

// wireBytes is what a packet would take on a link: its segments have headers of their own.
func wireBytes(bytes []byte) int {
	size := len(bytes) - headBytes
	if segment := int(binary.LittleEndian.Uint16(bytes[4:])); bytes[1] != 0 && segment > 0 {
		size += (size - tcpIPBytes - 1) / segment * tcpIPBytes
	}
	return size
}

func setJoining(devices [2]int, is *link) {
	flags := uintptr(0)
	if is.joins() {
		flags = joined
	}
	for _, device := range devices {
		if _, _, err := syscall.Syscall(syscall.SYS_IOCTL, uintptr(device), setOffload, flags); err != 0 {
			log.Fatal("setting a TUN device: ", err)
		}
	}
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
	spare = sync.Pool{New: func() any { return make([]byte, smallBytes) }}
)

// copied returns a packet of its own; most are small.
func copied(bytes []byte) []byte {
	if len(bytes) > smallBytes {
		return append([]byte(nil), bytes...)
	}
	return append(spare.Get().([]byte)[:0], bytes...)
}

func release(bytes []byte) {
	if cap(bytes) == smallBytes {
		spare.Put(bytes[:smallBytes])
	}
}

// readFrom reads a packet. While packets come, it looks for them now and then, as waiting for each takes longer than
// reading it.
func readFrom(device int, buffer []byte) int {
	for looks := 0; ; looks++ {
		read, err := syscall.Read(device, buffer)
		switch {
		case err == nil && looks > restLooks:
			syscall.SetNonblock(device, true)
			return read
		case err == nil:
			return read
		case err == syscall.EAGAIN && looks < restLooks:
			time.Sleep(grain / 2)
		case err == syscall.EAGAIN:
			syscall.SetNonblock(device, false)
		case err != syscall.EINTR:
			log.Fatal("reading a TUN device: ", err)
		}
	}
}

func take(from int, to int, way int, seed int64, out chan<- packet) {
	random := rand.New(rand.NewSource(seed))
	var freeNs, lastNs int64
	buffer := make([]byte, mostBytes)
	syscall.SetNonblock(from, true)
	for {
		bytes := buffer[:readFrom(from, buffer)]
		size := wireBytes(bytes)
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
				out <- packet{lastNs, copied(bytes)}
			}
			if overtaken {
				one := packet{lastNs + is.OvertakenNs, copied(bytes)}
				time.AfterFunc(time.Duration(one.dueNs)-time.Since(start), func() { give(to, way, one) })
			} else {
				out <- packet{lastNs, copied(bytes)}
			}
		}
	}
}

func give(to int, way int, one packet) {
	if now.Load().Cut[way] { // what is on a link when it is cut is lost
		seen[way].Cut.Add(1)
	} else if _, err := syscall.Write(to, one.bytes); err != nil {
		log.Print("writing to a TUN device: ", err)
	} else {
		seen[way].Passed.Add(1)
		seen[way].Bytes.Add(int64(wireBytes(one.bytes)))
	}
	release(one.bytes)
}

func giveInOrder(to int, way int, in <-chan packet) {
	for one := range in {
		if wait := time.Duration(one.dueNs) - time.Since(start); wait > 0 {
			time.Sleep(max(wait, grain)) // then all that is due meanwhile follows at once
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
		setJoining(devices, next)
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
