package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
// may ask for that: system is a connection to it, or the same one when it may ask. Every server must tell that the cluster knows of,
// unless it is known to be down.
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
	if err := system.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil); err != nil {
		return err
	}
	var all census
	for wait := attempt; ; wait = gatherFor {
		if len(all.silent()) > 0 {
			wait = attempt
		}
		try, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil || m.Header.Get("Status") != "" {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return all.verdict()
		}
		if err := all.add(m.Data); err != nil {
			return err
		}
	}
}

// census is what servers say of themselves and of each other.
type census struct {
	keep  int                 // servers that keep anything
	told  map[string]struct{} // those that answered
	named map[string]struct{} // those that must
}

// look judges one server's answer.
func (c *census) add(answer []byte) error {
	var got struct {
		Server struct {
			Name    string `json:"name"`
			Version string `json:"ver"`
		} `json:"server"`
		Data struct {
			Disabled bool `json:"disabled"`
			Config   struct {
				SyncAlways bool `json:"sync_always"`
			} `json:"config"`
			Meta *struct {
				Leader   string `json:"leader"`
				Replicas []struct {
					Name    string `json:"name"`
					Offline bool   `json:"offline"`
				} `json:"replicas"`
			} `json:"meta_cluster"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return fmt.Errorf("what a NATS server says of itself cannot be read: %w", err)
	}
	if c.told == nil {
		c.told, c.named = map[string]struct{}{}, map[string]struct{}{}
	}
	c.told[got.Server.Name] = struct{}{}
	if got.Data.Disabled {
		return nil
	}
	c.keep++
	if meta := got.Data.Meta; meta != nil {
		if meta.Leader != "" {
			c.named[meta.Leader] = struct{}{}
		}
		for _, r := range meta.Replicas {
			if !r.Offline {
				c.named[r.Name] = struct{}{}
			}
		}
	}
	switch {
	case !recent(got.Server.Version):
		return fmt.Errorf("the NATS server %s has version %s: %d.%d.%d or newer is needed", got.Server.Name, got.Server.Version, oldest[0], oldest[1], oldest[2])
	case !got.Data.Config.SyncAlways:
		return fmt.Errorf("%w: server %s runs without sync_interval: always", ErrUnsynced, got.Server.Name)
	}
	return nil
}

// silent are the servers that must tell and did not, in order.
func (c *census) silent() []string {
	var all []string
	for name := range c.named {
		if _, ok := c.told[name]; !ok {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (c *census) verdict() error {
	if c.keep == 0 {
		return fmt.Errorf("%w: whether its servers sync (sync_interval: always) is told to the system account alone", ErrUnsynced)
	}
	if silent := c.silent(); len(silent) > 0 {
		return fmt.Errorf("%w: server %s did not tell whether it syncs", ErrUnsynced, strings.Join(silent, ", "))
	}
	return nil
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
