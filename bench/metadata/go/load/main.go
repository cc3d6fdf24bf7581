// Sends a fixed number of requests a second, and measures each from its due time, so that a stalled
// server is charged for every waiting request. One thread on blocking
// sockets that spins until a request is due: neither Go's scheduler nor a timer is measured.
//
//	load ADDRESS TARGET RATE CONNECTIONS SECONDS
package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"syscall"
	"time"
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func connect(address string) int {
	to := netip.MustParseAddrPort(address)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		panic(err)
	}
	return fd
}

// exchange returns the length of the answer, which is the same each time.
func exchange(fd int, request, buffer []byte, want int) int {
	if _, err := syscall.Write(fd, request); err != nil {
		panic(err)
	}
	got := 0
	for {
		n, err := syscall.Read(fd, buffer[got:])
		if err != nil || n == 0 {
			panic(fmt.Sprint("answer cut short: ", err))
		}
		got += n
		if want == 0 {
			head := bytes.Index(buffer[:got], []byte("\r\n\r\n"))
			at := bytes.Index(buffer[:got], []byte("Content-Length: "))
			if head < 0 || at < 0 || !bytes.HasPrefix(buffer, []byte("HTTP/1.1 200")) {
				panic(string(buffer[:got]))
			}
			length, _, _ := bytes.Cut(buffer[at+16:got], []byte("\r"))
			want = head + 4 + number(string(length))
		}
		if got >= want {
			return want
		}
	}
}

func main() {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	address, target := os.Args[1], os.Args[2]
	rate, connections, seconds := number(os.Args[3]), number(os.Args[4]), number(os.Args[5])
	request := []byte("GET " + target + " HTTP/1.1\r\nHost: " + address + "\r\nMetadata: true\r\n\r\n")
	buffer := make([]byte, 65536)
	fds := make([]int, connections)
	want := 0
	for n := range fds {
		fds[n] = connect(address)
		want = exchange(fds[n], request, buffer, 0)
	}
	total := rate * seconds
	took := make([]float64, total)
	start := time.Now().Add(10 * time.Millisecond)
	for n := range took {
		due := start.Add(time.Duration(n) * time.Second / time.Duration(rate))
		for time.Now().Before(due) {
		}
		exchange(fds[n%connections], request, buffer, want)
		took[n] = float64(time.Since(due).Nanoseconds()) / 1e3
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	at := func(share float64) float64 { return took[int(share*float64(total-1))] }
	fmt.Printf(`{"p50_us": %.1f, "p99_us": %.1f, "p999_us": %.1f, "max_us": %.1f}`+"\n",
		at(0.5), at(0.99), at(0.999), at(1))
}
