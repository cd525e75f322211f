package dashboard

import (
	"math"
	"net/netip"
	"time"

	"weir/internal/engine"
)

// Limits, names and texts for external tests.
const (
	CoarseEvery      = coarseEvery
	IdleFor          = idleFor
	LastsFor         = lastsFor
	FailureWindow    = failureWindow
	MaxFailures      = maxFailures
	MaxRefusals      = maxRefusals
	MaxAudit         = maxAudit
	MaxTestBatch     = maxTestBatch
	MaxRows          = maxRows
	ListBytes        = listBytes
	FindBytes        = findBytes
	SignInRefused    = signInRefused
	ChangeRefused    = changeRefused
	Policy           = policy
	CookieName       = cookieName
	SecureCookieName = secureCookieName
)

// Parts of pages that scripts replace.
var (
	OverviewParts = overviewParts
	StreamParts   = streamParts
	RequestParts  = requestParts
)

// EachEvent finds the events of a payload.
var EachEvent = eachEvent

// Methods of a dashboard.
var (
	SetPassword     = (*Dashboard).setPassword
	Verify          = (*Dashboard).verify
	Tick            = (*Dashboard).tick
	KeyUse          = (*Dashboard).keyUse
	FiguresDocument = (*Dashboard).figuresDocument
	SearchAudit     = (*Dashboard).searchAudit
	KeepRefusals    = (*Dashboard).keepRefusals
)

// Admit starts a session for a password that was verified at this revision, and reports whether it
// could.
func Admit(d *Dashboard, checked engine.Revision) bool {
	_, s := d.admit(checked, "", "")
	return s != nil
}

// HoldVerify makes every password check, and so every sign-in, wait until the function release is
// called.
func HoldVerify(d *Dashboard) (release func()) {
	d.hashing = make(chan struct{}, hashers)
	for range hashers {
		d.hashing <- struct{}{}
	}
	return func() {
		for range hashers {
			<-d.hashing
		}
	}
}

// Sessions returns the number of valid sessions.
func Sessions(d *Dashboard) int {
	_, account := d.account.hash()
	return len(d.sessions.list(account))
}

// AddRefusal counts a refused password.
func AddRefusal(d *Dashboard, now time.Time, client netip.Addr, what string, throttled bool) {
	d.refusals.add(now, client, what, throttled)
}

// Totals returns the sum of each column of the samples in a period that ends now. The parameter
// back is the length of the period.
func Totals(d *Dashboard, now time.Time, back time.Duration) map[string]float64 {
	list, sums := d.figures.between(now, back), map[string]float64{}
	for i, name := range columnNames {
		sums[name] = total(list, column(i))
	}
	return sums
}

// SetStore replaces the figures of the store. It locks a mutex that samples and pages also lock
// before they read these figures, so there is no data race.
func SetStore(d *Dashboard, s Store) {
	d.sessions.mu.Lock()
	defer d.sessions.mu.Unlock()
	d.Store = func() Store { return s }
}

// PastDay fills the plots with a day of made-up figures, and keeps real samples from being added.
func PastDay(d *Dashboard, now time.Time) {
	f := &d.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coarse.last.taken, f.fine.last.taken = now.Add(48*time.Hour), now.Add(48*time.Hour)
	for i := range 24 * 60 {
		var s sample
		wave := (1 + math.Sin(float64(i)/110)) / 2
		s[at], s[span] = float64(now.Add(-time.Duration(24*60-i)*time.Minute).Unix()), 60
		s[requests], s[published], s[delivered] = 60*(900+400*wave), 60*(800+350*wave), 60*(2400+900*wave)
		s[received], s[sent] = s[published]*1100, s[delivered]*1200
		s[refused], s[limited], s[subscribers] = 60*12*wave, 60*5*max(0, wave-.8), math.Round(40+25*wave)
		s[syncMedian], s[syncSlow] = 1.2+wave, 4+3*wave
		s[publishMedian], s[publishSlow], s[delayMedian], s[delaySlow] = 1.6+wave, 5+4*wave, 2.1+wave, 8+5*wave
		s[diskUsed] = 40*(1<<30) - float64(24*60-1-i)*3e6
		s[diskFree] = 100*(1<<30) - s[diskUsed]
		f.coarse.add(s)
	}
}
