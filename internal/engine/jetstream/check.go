package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// oldest is the first version whose atomic batches, TTLs and syncs are as the engine needs them.
var oldest = [3]int{2, 15, 2}

// ErrUnsynced says that servers acknowledge before they sync, or that nobody could tell.
var ErrUnsynced = errors.New("NATS may acknowledge what a power cut undoes")

// gatherFor is how long answers of further servers are waited for after the last one.
const gatherFor = 500 * time.Millisecond

// Check refuses servers that are too old, and those that acknowledge before they sync (ErrUnsynced). Only the system account
// may ask for that: system is a connection to it, or the same one when it may ask.
func Check(ctx context.Context, nc, system *nats.Conn) error {
	if v := nc.ConnectedServerVersion(); !recent(v) {
		return fmt.Errorf("the NATS server has version %s: %d.%d.%d or newer is needed", v, oldest[0], oldest[1], oldest[2])
	}
	inbox := system.NewRespInbox()
	sub, err := system.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := system.PublishRequest("$SYS.REQ.SERVER.PING.VARZ", inbox, nil); err != nil {
		return err
	}
	for seen, wait := 0, attempt; ; wait = gatherFor {
		try, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil || m.Header.Get("Status") != "" {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if seen == 0 {
				return fmt.Errorf("%w: whether its servers sync (sync_interval: always) is told to the system account alone", ErrUnsynced)
			}
			return nil
		}
		keeps, err := look(m.Data)
		if err != nil {
			return err
		}
		if keeps {
			seen++
		}
	}
}

// look judges one server's answer, and tells whether it keeps anything.
func look(answer []byte) (keeps bool, err error) {
	var got struct {
		Server struct {
			Name    string `json:"name"`
			Version string `json:"ver"`
		} `json:"server"`
		Data struct {
			JetStream struct {
				Config *struct {
					SyncAlways bool `json:"sync_always"`
				} `json:"config"`
			} `json:"jetstream"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return false, fmt.Errorf("what a NATS server says of itself cannot be read: %w", err)
	}
	switch {
	case got.Data.JetStream.Config == nil:
		return false, nil
	case !recent(got.Server.Version):
		return true, fmt.Errorf("the NATS server %s has version %s: %d.%d.%d or newer is needed", got.Server.Name, got.Server.Version, oldest[0], oldest[1], oldest[2])
	case !got.Data.JetStream.Config.SyncAlways:
		return true, fmt.Errorf("%w: server %s runs without sync_interval: always", ErrUnsynced, got.Server.Name)
	}
	return true, nil
}

// recent tells whether a version is new enough.
func recent(version string) bool {
	plain, before, _ := strings.Cut(version, "-")
	parts := strings.SplitN(plain, ".", 3)
	if len(parts) != 3 {
		return false
	}
	for i, want := range oldest {
		got, err := strconv.Atoi(parts[i])
		if err != nil || got < want {
			return false
		}
		if got > want {
			return true
		}
	}
	return before == ""
}
