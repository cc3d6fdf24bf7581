// The Go programs of `make bench-agent` in one binary with three commands: a service for both
// agents, a poller with Go's standard library, and a hook that writes the time.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const path = "/metadata/scheduledevents"

type event struct {
	EventID           string   `json:"EventId"`
	EventStatus       string   `json:"EventStatus"`
	EventType         string   `json:"EventType"`
	ResourceType      string   `json:"ResourceType"`
	Resources         []string `json:"Resources"`
	NotBefore         string   `json:"NotBefore"`
	Description       string   `json:"Description"`
	EventSource       string   `json:"EventSource"`
	DurationInSeconds int      `json:"DurationInSeconds"`
}

type document struct {
	DocumentIncarnation int     `json:"DocumentIncarnation"`
	Events              []event `json:"Events"`
}

func main() {
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2])
	case "poll":
		interval, err := time.ParseDuration(os.Args[3])
		check(err)
		poll(os.Args[2], interval, os.Args[4:])
	case "stamp":
		check(os.WriteFile(os.Args[2], []byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0o600))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers and counts polls, publishes at POST /show, and returns the count at GET /count.
func serve(address string) {
	var lock sync.Mutex
	changed := make(chan struct{})
	shown := document{Events: []event{}}
	count := 0
	http.HandleFunc("/metadata/instance/compute/name", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "vm_0")
	})
	http.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprint(w, count)
	})
	http.HandleFunc("/show", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		shown.DocumentIncarnation++
		shown.Events = []event{}
		if id := r.URL.Query().Get("id"); id != "" {
			due := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
			shown.Events = []event{{id, "Scheduled", "Reboot", "VirtualMachine", []string{"vm_0"}, due, "", "Platform", -1}}
		}
		close(changed)
		changed = make(chan struct{})
		fmt.Fprint(w, time.Now().UnixNano())
	})
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.Copy(io.Discard, r.Body)
			return
		}
		lock.Lock()
		count++
		query := r.URL.Query()
		if wait := query.Get("wait"); wait != "" && query.Get("incarnation") == strconv.Itoa(shown.DocumentIncarnation) {
			seconds, _ := strconv.ParseFloat(wait, 64)
			news := changed
			lock.Unlock()
			select {
			case <-news:
			case <-time.After(time.Duration(seconds * float64(time.Second))):
			}
			lock.Lock()
		}
		body, _ := json.Marshal(shown)
		lock.Unlock()
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Write(body)
	})
	check(http.ListenAndServe(address, nil))
}

// poll reads the document at an interval, starts the hook for each new event, and approves the
// event.
func poll(endpoint string, interval time.Duration, hook []string) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: nil}}
	known := map[string]bool{}
	if interval < time.Nanosecond {
		interval = time.Nanosecond
	}
	ticker := time.NewTicker(interval)
	for {
		request, err := http.NewRequest(http.MethodGet, endpoint+path+"?api-version=2020-07-01", nil)
		check(err)
		request.Header.Set("Metadata", "true")
		if answer, err := client.Do(request); err == nil {
			var read document
			err = json.NewDecoder(answer.Body).Decode(&read)
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if err == nil {
				react(client, endpoint, read, known, hook)
			}
		}
		if interval > 0 {
			<-ticker.C
		}
	}
}

func react(client *http.Client, endpoint string, read document, known map[string]bool, hook []string) {
	for _, one := range read.Events {
		if known[one.EventID] {
			continue
		}
		known[one.EventID] = true
		go func(id string) {
			if exec.Command(hook[0], hook[1:]...).Run() != nil {
				return
			}
			body, _ := json.Marshal(map[string]any{"StartRequests": []map[string]string{{"EventId": id}}})
			request, _ := http.NewRequest(http.MethodPost, endpoint+path+"?api-version=2020-07-01", bytes.NewReader(body))
			request.Header.Set("Metadata", "true")
			if answer, err := client.Do(request); err == nil {
				answer.Body.Close()
			}
		}(one.EventID)
	}
}
