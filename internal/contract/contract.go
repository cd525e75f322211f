// Package contract is the black-box suite of the HTTP interface: given an address and keys it checks the specification
// sentence by sentence, and every decision that can be seen from outside. It knows nothing of the server but its
// answers, so it runs on any engine, over any version of HTTP, against a test's own process or a deployment.
//
// A case quotes what it checks: a sentence of the specification, or a decision (D1 to D32). Cases make their own
// streams and delete them. None waits for a time to pass: what takes time is waited for itself, up to a deadline.
package contract

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Target is the service that is held to its contract.
type Target struct {
	BaseURL string              // {base_url}: no slash at the end
	Client  func() *http.Client // makes a client for the protocol to test; nil: HTTP/1.1

	Live      string // key with every permission on its whole project
	OtherLive string // the same, of another project
	Test      string // test key of Live's project

	// NewKey makes a key of Live's project, and tells how to revoke it. Nil: cases about scopes and revoking are skipped.
	NewKey func(t testing.TB, k Key) (key string, revoke func())

	Demo     bool          // the demo stream is switched on
	GapGrace time.Duration // of the service; 0: 2 s
	DocBase  string        // what doc_url begins with; empty: BaseURL
	Slow     bool          // also what takes longer than a minute
	Light    bool          // without what takes much computing and is the same by every transport
	Spread   bool          // requests go to several nodes, which count them together a moment later
	Apart    bool          // it may be cut off from its store: 503 is an answer like others
	Limits   Limits        // for RunLimits
}

// Key is what a new key may do.
type Key struct {
	Kind        string   // live or test
	Permissions []string // out of read, publish and manage; none: all
	Streams     []string // ids; none: the whole project
}

// Limits are settings of the service. Reaching a limit takes as many requests as it allows: RunLimits wants small ones.
type Limits struct {
	Live, Test, Demo, Anonymous int // requests a minute
	StreamsPerProject           int
	Subscribers                 int
	Heartbeat                   time.Duration
}

// Case is one thing that the contract says.
type Case struct {
	Name string
	Says string
	Run  func(t *T)
}

type subject struct {
	name  string
	cases []Case
	alone bool // uses up what all share
}

// within are the subjects that a node settles by itself, and that take most of the computing. Where requests are spread over nodes
// they are left to the slow run.
var within = []string{"bodies", "sizes", "wire", "order", "routes", "errors", "cors"}

// Run checks everything that a service must do with room to spare in its limits.
func Run(t *testing.T, target Target) {
	run(t, target, []subject{
		{"basics", basicCases, false},
		{"streams", streamCases, false},
		{"create", createCases, false},
		{"delete", deleteCases, false},
		{"paging", pagingCases, false},
		{"publish", publishCases, false},
		{"sequences", sequenceCases, false},
		{"gaps", gapCases, false},
		{"idempotency", idempotencyCases, false},
		{"bodies", bodyCases, false},
		{"sizes", sizeCases, false},
		{"batches", batchCases, false},
		{"eviction", evictionCases, false},
		{"subscribe", subscribeCases, false},
		{"delivery", deliveryCases, false},
		{"wire", wireCases, false},
		{"auth", authCases, false},
		{"order", orderCases, false},
		{"scopes", scopeCases, false},
		{"routes", routeCases, false},
		{"errors", errorCases, false},
		{"cors", corsCases, false},
		{"rate", rateCases, false},
		{"demo", demoCases, true},
	})
}

// RunLimits checks what happens at the limits, on a service that runs with those of target.Limits.
func RunLimits(t *testing.T, target Target) {
	run(t, target, []subject{{"limits", limitCases, true}})
}

func run(t *testing.T, target Target, subjects []subject) {
	whole := NewT(t, target)
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if target.Spread && !target.Slow && slices.Contains(within, s.name) {
				t.Skip("each node decides it by itself: only the slow run does it")
			}
			for _, c := range s.cases {
				t.Run(c.Name, func(t *testing.T) {
					if !s.alone {
						t.Parallel()
					}
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("the contract says: %s", c.Says)
						}
					})
					c.Run(&T{T: t, Target: whole.Target, common: whole.common})
				})
			}
		})
	}
}

// newT fills in what a target leaves out.
func NewT(t *testing.T, target Target) *T {
	target.BaseURL = strings.TrimSuffix(target.BaseURL, "/")
	if target.DocBase == "" {
		target.DocBase = target.BaseURL
	}
	if target.GapGrace == 0 {
		target.GapGrace = 2 * time.Second
	}
	if target.Client == nil {
		target.Client = HTTP1
	}
	shared := &common{client: target.Client()}
	t.Cleanup(shared.client.CloseIdleConnections)
	shared.description = describe(t, shared.client, target.BaseURL)
	return &T{T: t, Target: target, common: shared}
}

// common is what the cases of a run share.
type common struct {
	client      *http.Client
	description *description
	requestIDs  sync.Map // all that were seen: none comes twice
}

// T is a case at work.
type T struct {
	*testing.T
	Target
	*common
}

// Patience is how long an effect that the contract promises at once may take on a busy machine.
const Patience = 20 * time.Second

// eventually waits until something is so.
func Eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
