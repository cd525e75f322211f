package service

import (
	"context"
	"fmt"
	"path/filepath"

	"weir"
	"weir/internal/admin"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/nodes"
)

// backup prepares a backup of the running server for the admin socket. The parameter since is
// empty, or describes an earlier backup. The new backup then leaves out the files that the earlier
// one has. A backup of a cluster leaves nothing out, because it has no files in common with an
// earlier one.
func (svc *Service) backup(ctx context.Context, since []byte) (admin.Backup, error) {
	earlier, err := datadir.ParseSummary(since)
	if err != nil {
		return nil, weir.Errorf(weir.InvalidRequest, "the description of the earlier backup: %v", err)
	}
	if svc.store.jetstream != nil {
		return svc.store.gather(ctx)
	}
	snap, err := svc.store.journal.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return datadir.NewArchive(svc.settings.Data, snap, earlier)
}

// gatherSpare is how many bytes the copy of a cluster's store may take in addition to the stored
// data, because even a new journal has space for three segments.
const gatherSpare = 256 << 20

// gather prepares a backup of a cluster. It copies the store into a temporary journal in the data
// directory of this node, so the disk must have space for one more copy.
func (s *store) gather(ctx context.Context) (admin.Backup, error) {
	data := s.settings.Data
	standing := s.jetstream.Copies.Stand(ctx)
	if standing.Headless > 0 {
		return nil, weir.Errorf(weir.StorageUnavailable, "%d shards do not answer, so the size of the backup is unknown; retry", standing.Headless)
	}
	stored := int64(standing.Bytes)
	free, size, err := disk.Space(data)
	if err != nil {
		return nil, err
	}
	if needed := stored + stored/8 + gatherSpare + nodes.DiskReserve(size); free < needed {
		return nil, weir.Errorf(weir.StorageUnavailable, "this node needs %d MiB of free disk space to take the backup, but has %d MiB", needed>>20, free>>20)
	}
	from, err := s.openAgain(ctx)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	a, err := datadir.Gather(ctx, from, data, filepath.Join(data, backupDir))
	if err != nil {
		return nil, weir.Errorf(weir.StorageUnavailable, "copy the data of the cluster: %v", err) // a weir.Error, so that the operator sees the reason
	}
	return a, nil
}

// migrate copies the data directory of a single server into the store of this cluster.
func (svc *Service) migrate(ctx context.Context, from string, tell func(admin.Migration)) (admin.Migration, error) {
	if svc.store.jetstream == nil {
		return admin.Migration{}, weir.Errorf(weir.InvalidRequest, "this server is not part of a cluster: name the data directory of a cluster's node with --data")
	}
	to, err := svc.store.openAgain(ctx)
	if err != nil {
		return admin.Migration{}, err
	}
	defer to.Close()
	report := func(c datadir.Copied) admin.Migration {
		return admin.Migration{Documents: c.Documents, Streams: c.Streams, Batches: c.Batches, Bytes: c.Bytes}
	}
	done, err := datadir.CopyInto(ctx, to, from, func(c datadir.Copied) { tell(report(c)) })
	return report(done), err
}

// openAgain opens the store of the cluster a second time, like another node. A copy needs this,
// because an engine can open a log only once, and the hub of this node may have the log open. The
// hub follows what the copy writes, as it follows the writes of other nodes.
func (s *store) openAgain(ctx context.Context) (*jetstream.Engine, error) {
	nc, err := s.connect()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	e, err := jetstream.Open(ctx, nc, jetstream.Options{Replicas: s.replicas(), Logger: s.logger, Beside: s.jetstream})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return e, nil
}

// replicas returns the number of NATS servers that store each message. A node without peers stores
// everything itself.
func (s *store) replicas() int {
	if e := &s.settings.Engine; e.Listen == "" || len(e.Peers) > 0 {
		return e.Replicas
	}
	return 1
}
