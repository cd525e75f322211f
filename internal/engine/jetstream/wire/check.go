package wire

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

// oldest is the first NATS version whose atomic batches, TTLs and syncs work as the engine needs
// them.
var oldest = [3]int{2, 15, 2}

// ErrUnsynced says that servers acknowledge writes before they sync them, or that Check could not
// find out whether they do.
var ErrUnsynced = errors.New("NATS may acknowledge writes that a power cut undoes")

// gatherFor is how long Check waits for the next answer after it has received one.
const gatherFor = 500 * time.Millisecond

// Check refuses servers that are too old, and servers that acknowledge before they sync
// (ErrUnsynced). Only the system account may ask whether servers sync. The parameter system is a
// connection to that account, or nc itself if nc has the permission. Every server that another
// server names as a member of the cluster must answer, unless it is known to be down.
func Check(ctx context.Context, nc, system *nats.Conn) error {
	if v := nc.ConnectedServerVersion(); !recent(v) {
		return fmt.Errorf("NATS server has version %s, need %d.%d.%d or newer", v, oldest[0], oldest[1], oldest[2])
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
	for wait := Timeout; ; wait = gatherFor {
		// Servers that were named by other servers and have not answered yet get more time.
		if len(all.silent()) > 0 {
			wait = Timeout
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

// census collects what servers report about themselves and each other.
type census struct {
	keep  int                 // number of servers with JetStream storage
	told  map[string]struct{} // servers that answered
	named map[string]struct{} // servers that must answer
}

// add evaluates one server's answer.
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
		return fmt.Errorf("read status of a NATS server: %w", err)
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
		return fmt.Errorf("NATS server %s has version %s, need %d.%d.%d or newer", got.Server.Name, got.Server.Version, oldest[0], oldest[1], oldest[2])
	case !got.Data.Config.SyncAlways:
		return fmt.Errorf("%w: server %s runs without sync_interval: always", ErrUnsynced, got.Server.Name)
	}
	return nil
}

// silent returns the names of the servers that must answer and have not answered, sorted.
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

// verdict returns nil if every server that must answer has answered, and at least one of them
// stores data.
func (c *census) verdict() error {
	if c.keep == 0 {
		return fmt.Errorf("%w: only the system account can ask whether the servers sync (sync_interval: always)", ErrUnsynced)
	}
	if silent := c.silent(); len(silent) > 0 {
		return fmt.Errorf("%w: server %s did not report whether it syncs", ErrUnsynced, strings.Join(silent, ", "))
	}
	return nil
}

// recent reports whether a version is new enough.
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
