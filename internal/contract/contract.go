// Package contract is the black-box test suite of the HTTP interface. Given an address and keys, it
// checks the specification sentence by sentence, and every decision that a client can observe. It
// knows only the server's responses, so it runs against any server: any engine, any version of
// HTTP, a process that a test started or a deployment.
//
// Each case states what it checks: it quotes the specification, or it names a decision (D1 to D32)
// and sums it up. Cases create their own streams and delete them. No case sleeps: each one waits
// for the effect itself, up to a deadline.
package contract

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Target is the service that the suite checks.
type Target struct {
	BaseURL string              // {base_url} of the specification, without a slash at the end
	Client  func() *http.Client // creates a client for the protocol to test; nil for HTTP/1.1

	Live      string // live key with all permissions on its whole project
	OtherLive string // live key of another project, also with all permissions
	Test      string // test key of Live's project

	// NewKey creates a key of Live's project and returns a function that revokes it. If it is nil,
	// the cases about scopes and revocation are skipped.
	NewKey func(t testing.TB, k Key) (key string, revoke func())

	Demo     bool          // the service runs the demo stream
	GapGrace time.Duration // --gap-grace of the service; 0 for the default of 2 s
	DocBase  string        // prefix of doc_url; empty for BaseURL
	Slow     bool          // run cases that take longer than a minute
	Light    bool          // skip cases that need much CPU and do not depend on the transport
	Spread   bool          // requests go to several nodes, whose counters may differ for a moment
	Apart    bool          // the node may be cut off from its store, so 503 is not a failure
	Limits   Limits        // for RunLimits
}

// Key describes a key to create.
type Key struct {
	Kind        string   // live or test
	Permissions []string // of read, publish and manage; empty for all
	Streams     []string // ids that the key is confined to; empty for the whole project
}

// Limits are the limits that the service runs with. RunLimits reaches each of them by sending that
// many requests, so they must be small.
type Limits struct {
	Live, Test, Demo, Anonymous int // requests per minute
	StreamsPerProject           int
	Subscribers                 int
	Heartbeat                   time.Duration
}

// Case checks one statement of the contract.
type Case struct {
	Name string
	Says string // the statement; a failing case logs it
	Run  func(t *T)
}

// subject is a group of cases.
type subject struct {
	name  string
	cases []Case
	alone bool // its cases run one at a time, because they use up a limit that all share
}

// within are the subjects that each node decides by itself. They need most of the CPU, so a run
// with requests spread over nodes leaves them to the slow run.
var within = []string{"bodies", "sizes", "wire", "order", "routes", "errors", "cors"}

// Run checks everything that a service must do while it stays below its limits.
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
		{"contiguous", contiguousCases, false},
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

// RunLimits checks what a service does at its limits. The service must run with target.Limits.
func RunLimits(t *testing.T, target Target) {
	run(t, target, []subject{{"limits", limitCases, true}})
}

func run(t *testing.T, target Target, subjects []subject) {
	whole := NewT(t, target)
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if target.Spread && !target.Slow && slices.Contains(within, s.name) {
				t.Skip("each node decides this by itself; Target.Slow runs it")
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

// NewT returns a T for requests to a target. It fills in the defaults of the target and loads the
// description of its interface.
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

// common is shared by all cases of a run.
type common struct {
	client      *http.Client
	description *description
	requestIDs  sync.Map // all ids seen so far, to find one that is used twice
}

// T is a running case: a test that can send requests to its target. Its methods fail the test when
// a response breaks a rule that holds for every response.
type T struct {
	*testing.T
	Target
	*common
}

// Patience is how long a case waits for an effect that the contract promises at once. It is long
// because the machine may be busy.
const Patience = 20 * time.Second

// Eventually calls so until it returns true, and fails the test if that takes longer than within.
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
