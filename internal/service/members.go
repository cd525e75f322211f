package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir"
	"weir/internal/admin"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/copies"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/streams"
)

// removedNames is the file in the data directory with the names of the nodes that were removed from
// the cluster. They are in a file, because a node must refuse the removed nodes before it can read
// the store.
const removedNames = "nats.removed"

// readRemoved returns the names of the removed nodes.
func readRemoved(data string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(data, removedNames))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the names of removed nodes: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// errRemoved means that this node was removed from the cluster.
func (s *store) errRemoved() error {
	return fmt.Errorf("this node, %s, was removed from the cluster; to add this machine again, start it with an empty data directory", s.node)
}

// takeRemoved refuses connections from removed nodes, and remembers their names. If this node is one
// of them, tendServer notices it and ends the process.
func (s *store) takeRemoved(names []string) {
	if err := disk.Replace(filepath.Join(s.settings.Data, removedNames), []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
		s.logger.Error("storing the names of removed nodes failed", "error", err)
	}
	s.server.Refuse(names)
	s.removed.Store(&names)
}

// isRemoved reports whether this node was removed from the cluster.
func (s *store) isRemoved() bool {
	names := s.removed.Load()
	return names != nil && slices.Contains(*names, s.node)
}

// members serves the commands that change the nodes and shards of the cluster.
type members struct{ s *store }

func (m members) Balance(ctx context.Context, tell func(admin.Work)) error {
	if m.s.jetstream == nil {
		return errAlone
	}
	return explain(m.s.jetstream.Copies.Balance(ctx, telling(tell)))
}

func (m members) Remove(ctx context.Context, node admin.RemoveNode, tell func(admin.Work)) error {
	if m.s.jetstream == nil {
		return errAlone
	}
	return explain(m.s.jetstream.Copies.Expel(ctx, node.Name, node.Force, telling(tell)))
}

func (m members) Grow(ctx context.Context, shards int) error {
	if m.s.jetstream == nil {
		return errAlone
	}
	return explain(m.s.jetstream.Grow(ctx, shards))
}

// errAlone refuses a command for clusters.
var errAlone = weir.Errorf(weir.InvalidRequest, "this server is not part of a cluster")

func telling(tell func(admin.Work)) func(copies.Progress) {
	return func(p copies.Progress) { tell(admin.Work{Done: p.Done, Total: p.Total, Doing: p.Doing}) }
}

// explain turns errors that the operator can act on into errors that the operator sees.
func explain(err error) error {
	switch {
	case errors.Is(err, copies.ErrMove) || errors.Is(err, streams.ErrShards):
		return weir.Errorf(weir.InvalidRequest, "%v", err)
	case errors.Is(err, engine.ErrOlder):
		return weir.Errorf(weir.InvalidRequest, "%v: upgrade all nodes first; a node that has left counts for an hour", err)
	case errors.Is(err, embedded.ErrAlone):
		return errAlone
	case errors.Is(err, engine.ErrUnavailable):
		return weir.Errorf(weir.StorageUnavailable, "%v; retry", err)
	}
	return err
}
