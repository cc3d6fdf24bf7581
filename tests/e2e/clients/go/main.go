// A polling loop on Go's net/http. Prints each document that differs from the one before.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

type event struct {
	EventId     string
	EventStatus string
	Resources   []string
}

type document struct {
	DocumentIncarnation int
	Events              []event
}

func names(each event, name string) bool {
	for _, resource := range each.Resources {
		if resource == name {
			return true
		}
	}
	return false
}

func do(method, url string, body []byte) []byte {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Metadata", "true")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		panic(fmt.Sprint(answer.Status, err))
	}
	return text
}

func main() {
	url, name := os.Args[1], os.Args[2]
	last, seen := -1, false
	approved := map[string]bool{}
	for {
		text := do("GET", url, nil)
		var shown document
		if err := json.Unmarshal(text, &shown); err != nil {
			panic(err)
		}
		if shown.DocumentIncarnation != last {
			last = shown.DocumentIncarnation
			fmt.Println(string(text))
			for _, each := range shown.Events {
				if !names(each, name) {
					continue
				}
				seen = true
				if each.EventStatus == "Scheduled" && !approved[each.EventId] {
					approved[each.EventId] = true
					body, _ := json.Marshal(map[string]any{"StartRequests": []any{each}})
					do("POST", url, body)
				}
			}
			if seen && len(shown.Events) == 0 {
				return
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
}
