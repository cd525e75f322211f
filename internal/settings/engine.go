package settings

import (
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"weir/internal/engine/jetstream/streams"
)

// Engine holds the settings of the storage engine.
type Engine struct {
	Kind          string
	NATSURLs      []string
	NATSCreds     string
	SystemCreds   string
	Replicas      int
	Shards        int
	AllowUnsynced bool
	ServeCutOff   bool
	Cluster       string
	Listen        string
	Peers         []string
	Secret        string // path of the file with the shared secret
}

// The kinds of engines.
const (
	Journal = "journal"
	NATS    = "nats"
)

func (e *Engine) flags(f *pflag.FlagSet) {
	f.StringVar(&e.Kind, "engine", Journal, "storage engine: journal (in the data directory, one node) or nats (NATS JetStream, several nodes)")
	f.StringSliceVar(&e.NATSURLs, "nats-url", nil, "`URLs` of the NATS servers for --engine nats, comma-separated; put credentials in the --nats-creds file, not in the URL")
	f.StringVar(&e.NATSCreds, "nats-creds", "", "`file` holding the credentials for --nats-url: a NATS .creds file, or one line USER:PASSWORD")
	f.StringVar(&e.SystemCreds, "nats-system-creds", "", "`file` holding credentials of the NATS system account, used to check that the servers of --nats-url sync before they acknowledge (default: --nats-creds)")
	f.IntVar(&e.Replicas, "nats-replicas", 3, "number of NATS servers that store each message; fixed when the store is created; always 1 on a single embedded node (--cluster-listen without --cluster-peers)")
	f.IntVar(&e.Shards, "nats-shards", streams.DefaultShards, "number of JetStream streams (shards) that hold the data, used only when the store is created (to raise it later, use \"weir node shards\"); fewer shards put more batches into one sync, more shards spread the load over more servers")
	f.BoolVar(&e.AllowUnsynced, "nats-allow-unsynced", false, "accept servers of --nats-url that acknowledge before they sync; a power cut may lose acknowledged batches")
	f.BoolVar(&e.ServeCutOff, "cluster-serve-cut-off", false, "keep answering reads and subscriptions on a node that is cut off from the majority; such a node may honour revoked keys and serve deleted streams")
	f.StringVar(&e.Cluster, "cluster-name", "weir", "`name` of the cluster of embedded NATS servers")
	f.StringVar(&e.Listen, "cluster-listen", "", "`address` where the embedded NATS server accepts connections from other nodes (default: none; the node uses --nats-url)")
	f.StringSliceVar(&e.Peers, "cluster-peers", nil, "the --cluster-listen `addresses` of the other nodes, comma-separated; this node's own address may be among them")
	f.StringVar(&e.Secret, "cluster-secret", "", "`file` holding the cluster's shared secret, at least 32 random bytes; required with --cluster-peers")
}

// check refuses invalid values and combinations. Each error names the flags.
func (e *Engine) check(must must) {
	must(e.Kind == Journal || e.Kind == NATS, "--engine %q: not journal or nats", e.Kind)
	if e.Kind == Journal {
		must(len(e.NATSURLs) == 0, "--nats-url without --engine nats")
		must(e.Listen == "", "--cluster-listen without --engine nats")
		must(len(e.Peers) == 0, "--cluster-peers without --engine nats")
		return
	}
	must(len(e.NATSURLs) > 0 || e.Listen != "", "--engine nats: needs --nats-url or --cluster-listen")
	must(len(e.NATSURLs) == 0 || e.Listen == "", "--nats-url and --cluster-listen: choose one")
	must(e.Replicas >= 1 && e.Replicas <= 5, "--nats-replicas %d: not 1 to 5", e.Replicas)
	must(e.Shards >= 1 && e.Shards <= streams.MaxShards, "--nats-shards %d: not 1 to %d", e.Shards, streams.MaxShards)
	for _, u := range e.NATSURLs {
		parsed, err := url.Parse(u)
		good := err == nil && parsed.Host != "" && (parsed.Scheme == "nats" || parsed.Scheme == "tls")
		must(good, "--nats-url: not an address such as nats://127.0.0.1:4222")
		must(!good || parsed.User == nil, "--nats-url: credentials in it would be printed with the configuration; use --nats-creds")
	}
	must(e.Listen != "" || len(e.Peers) == 0, "--cluster-peers without --cluster-listen")
	must(e.Secret != "" || len(e.Peers) == 0, "--cluster-peers without --cluster-secret")
	must(e.Cluster != "" && !strings.ContainsAny(e.Cluster, " .*>\t"), "--cluster-name %q: empty, or contains a space, dot, * or >", e.Cluster)
	for _, a := range append([]string{e.Listen}, e.Peers...) {
		_, port, err := net.SplitHostPort(a)
		must(a == "" || err == nil && port != "", "--cluster-listen, --cluster-peers %q: not HOST:PORT", a)
	}
}
