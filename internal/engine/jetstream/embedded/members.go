package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrAlone means that the server is not part of a cluster.
var ErrAlone = errors.New("this node has no cluster")

const (
	// system is the name of the user that manages the cluster as a whole. Like the other user, it
	// exists only inside the process.
	system = "system"
	// global is the account that holds the streams.
	global = "$G"
	// nodeTag is the beginning of a tag that exactly one server has. With this tag, a copy of a
	// stream can be moved to a certain server.
	nodeTag = "node:"
)

// Members returns the names of the connected servers, this one included, and the number of all
// servers that have joined the cluster and were not removed.
func (e *Server) Members() (connected []string, all int, err error) {
	peers, err := e.peers()
	if err != nil {
		return nil, 0, err
	}
	routes, err := e.s.Load().Routez(nil)
	if err != nil {
		return nil, 0, fmt.Errorf("list the connections of the cluster: %w", err)
	}
	connected = []string{e.options.Name}
	for _, p := range peers {
		// NATS counts a server that was killed as online for a while. But its routes end at once, so a
		// server without a route is not connected.
		if !p.Offline && slices.ContainsFunc(routes.Routes, func(r *server.RouteInfo) bool { return r.RemoteName == p.Name }) {
			connected = append(connected, p.Name)
		}
	}
	slices.Sort(connected)
	return connected, len(peers) + 1, nil
}

// HasMember reports whether a server has joined the cluster and was not removed. The server need
// not be connected.
func (e *Server) HasMember(name string) (bool, error) {
	peers, err := e.peers()
	id := peerID(name)
	return name == e.options.Name || slices.ContainsFunc(peers, func(p *server.PeerInfo) bool { return p.Peer == id }), err
}

// peers returns the other servers of the cluster. The name of a server is unknown if that server
// has not been connected since this server started.
func (e *Server) peers() ([]*server.PeerInfo, error) {
	info, err := e.s.Load().Jsz(&server.JSzOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list the servers of the cluster: %w", err)
	case info.Meta == nil:
		return nil, ErrAlone
	case info.Meta.Leader == "":
		return nil, errors.New("list the servers of the cluster: it has no leader")
	}
	return info.Meta.Replicas, nil
}

// Refuse sets the names of the nodes that may not connect, because they were removed from the
// cluster. Connections that exist stay open.
func (e *Server) Refuse(names []string) {
	names = slices.Clone(names)
	e.refused.Store(&names)
}

func (e *Server) refuses(name string) bool { return slices.Contains(*e.refused.Load(), name) }

// peerID returns the id under which the cluster knows a server. NATS computes it from the name.
func peerID(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	id := sum[:8]
	for i, b := range id {
		id[i] = digits[int(b)%len(digits)]
	}
	return string(id)
}

// Move starts to move the copy of a stream from one server to another. The servers do the rest by
// themselves: the stream is available all the time, and the old copy is removed when the new one is
// complete.
func (e *Server) Move(ctx context.Context, stream, from, to string) error {
	return e.request(ctx, system, "$JS.API.ACCOUNT.STREAM.MOVE."+global+"."+stream, map[string]any{"server": from, "tags": []string{nodeTag + to}})
}

// Lead makes a server that has a copy of a stream its leader.
func (e *Server) Lead(ctx context.Context, stream, name string) error {
	return e.request(ctx, user, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, map[string]any{"placement": map[string]string{"preferred": name}})
}

// Remove removes a server from the cluster. If the server had copies of streams, other servers get
// new copies.
func (e *Server) Remove(ctx context.Context, name string) error {
	return e.request(ctx, system, "$JS.API.SERVER.REMOVE", map[string]string{"peer_id": peerID(name)})
}

// request sends a request to the API of JetStream over a connection of its own.
func (e *Server) request(ctx context.Context, as, subject string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	nc, err := nats.Connect("", nats.InProcessServer(e), nats.UserInfo(as, e.password))
	if err != nil {
		return err
	}
	defer nc.Close()
	answer, err := nc.RequestWithContext(ctx, subject, b)
	if err != nil {
		return err
	}
	var got struct {
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return err
	}
	if got.Error != nil {
		return got.Error
	}
	return nil
}
