// The metadata service's logic for a GET on Go's net/http, as a yardstick.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

type view struct {
	etag string
	body []byte
}

var versions = map[string]bool{
	"2017-03-01": true, "2017-08-01": true, "2017-11-01": true, "2019-01-01": true,
	"2019-04-01": true, "2019-08-01": true, "2020-07-01": true,
}

type group struct {
	polled atomic.Bool // a real node reports polls once a second
	shown  atomic.Pointer[map[string]view]
}

var callers sync.Map // address -> *group

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q}`, text)
}

func events(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	found, ok := callers.Load(host)
	if !ok {
		refuse(w, 404, "Not found")
		return
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		refuse(w, 400, "Bad request. X-Forwarded-For is not accepted")
		return
	}
	if !strings.EqualFold(r.URL.Path, "/metadata/scheduledevents") {
		refuse(w, 404, "Not found")
		return
	}
	if r.Method != "GET" {
		w.Header().Set("Allow", "GET")
		refuse(w, 405, "Method not allowed")
		return
	}
	if !strings.EqualFold(r.Header.Get("Metadata"), "true") {
		refuse(w, 400, "Bad request. Required metadata header not specified")
		return
	}
	version := r.URL.Query()["api-version"]
	if len(version) != 1 || !versions[version[0]] {
		refuse(w, 400, "Bad request. api-version is invalid or was not specified in the request.")
		return
	}
	asked := found.(*group)
	asked.polled.Store(true)
	shown := (*asked.shown.Load())[version[0]]
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Server", "Go")
	h.Set("ETag", shown.etag)
	if r.Header.Get("If-None-Match") == shown.etag {
		w.WriteHeader(304)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(shown.body)))
	w.Write(shown.body)
}

func main() {
	body, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	shown := map[string]view{}
	for version := range versions {
		shown[version] = view{`"2-5e87538b"`, body}
	}
	only := &group{}
	only.shown.Store(&shown)
	callers.Store("127.0.0.1", only)
	http.HandleFunc("/", events)
	panic(http.ListenAndServe(os.Args[1], nil))
}
