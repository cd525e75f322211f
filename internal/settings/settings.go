// Package settings holds the settings of a server: the flags, the environment variables and the
// keys of the configuration file that set them, where each value came from, and which settings may
// change while the server is running.
package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weir/internal/access"
)

// Settings are the settings of weir serve. Every flag is also an environment variable (--gap-grace
// is WEIR_GAP_GRACE) and, except for --config, a key of the configuration file (gap-grace).
type Settings struct {
	Config            string
	Data              string
	HTTP              string
	HTTPS             HTTPS
	Engine            Engine
	BaseURL           string
	BootstrapKeys     []string
	PasswordFile      string
	Dashboard         string // DashboardOn, DashboardOff or an address
	Demo              bool
	GapGrace          time.Duration
	Limits            access.Limits
	StreamsPerProject int
	MaxIndexMemory    int // bytes; 0: an eighth of the machine's memory
	MaxSubscribers    int
	PerKey            int // maximum number of open subscriptions per key; 0: no fixed limit
	PerProject        int
	PerAddress        int
	Heartbeat         time.Duration
	WriteTimeout      time.Duration
	EventLoop         bool
	CORSOrigins       []string
	DSOpen            string // name of the project that /ds opens to callers without a key; empty: none
	DSLongPoll        time.Duration
	TrustedProxies    []string
	Metrics           string
	Profiles          bool
	ShutdownGrace     time.Duration
	ExitWhenReadOnly  time.Duration // 0: never
	CompressCold      bool
	ScrubRate         int // MiB per second; 0: no scrub
	ScrubEvery        time.Duration
	LogLevel          string
	LogFormat         string

	Proxies []netip.Prefix // TrustedProxies, parsed

	flags *pflag.FlagSet
	from  sources
	level *slog.LevelVar // level of the logger that Load returned
}

// Names of flags that other packages, or other files of this package, use.
const (
	configFlag        = "config" // the configuration file cannot contain this key
	bootstrapKeysFlag = "bootstrap-keys"

	HTTPSFlag          = "https"
	MaxSubscribersFlag = "max-subscribers"
	MetricsFlag        = "metrics"
	PasswordFileFlag   = "admin-password-file"
	DashboardFlag      = "dashboard"
)

// Values of --dashboard that are not an address.
const (
	DashboardOn  = "on"
	DashboardOff = "off"
)

// Flags adds the flags to a set. Parsing the set then fills s.
func (s *Settings) Flags(f *pflag.FlagSet) {
	f.StringVar(&s.Config, configFlag, "", "TOML `file` with settings; its keys are the names of the flags")
	DataFlag(f, &s.Data)
	f.StringVar(&s.HTTP, "http", "127.0.0.1:8080", "`address` for HTTP/1.1 and cleartext HTTP/2 (prior knowledge); off to disable")
	s.HTTPS.flags(f)
	s.Engine.flags(f)
	f.StringVar(&s.BaseURL, "base-url", "", "`URL` that doc_url and printed links start with (default: from --http, or from --https if --http is off)")
	f.StringSliceVar(&s.BootstrapKeys, bootstrapKeysFlag, nil, "`PROJECT_NAME:KEY` pairs, comma-separated; missing projects and keys are created at startup")
	f.StringVar(&s.PasswordFile, PasswordFileFlag, "", "`file` holding the password of the dashboard's admin account (default: the first start creates one and shows it once)")
	f.StringVar(&s.Dashboard, DashboardFlag, DashboardOn, "where the dashboard is: on (at /dashboard of --http and --https), off, or an `address` of its own for HTTP")
	f.BoolVar(&s.Demo, "demo", true, "serve the demo project and stream")
	f.DurationVar(&s.GapGrace, "gap-grace", 2*time.Second, "how long a missing sequence number below the cursor can still be filled in")
	f.IntVar(&s.Limits.Live, "rate-live", 600_000, "requests per minute for each live key and each management token; 0 means unlimited")
	f.IntVar(&s.Limits.Test, "rate-test", 6_000, "requests per minute for each test key; 0 means unlimited")
	f.IntVar(&s.Limits.Demo, "rate-demo", 60, "requests per minute to the demo for each client address; 0 means unlimited")
	f.IntVar(&s.Limits.Anonymous, "rate-anonymous", 6_000, "requests per minute for each client address, counting only requests without a valid key; 0 means unlimited")
	f.IntVar(&s.StreamsPerProject, "streams-per-project", 10_000, "maximum number of streams in a project")
	f.IntVar(&s.MaxIndexMemory, "max-index-memory", 0, "memory for the index of all batches and for idempotency keys, in bytes; when it is used up, projects that use more than their share (the total divided by the number of projects) cannot publish; 0 means an eighth of the machine's memory")
	f.IntVar(&s.MaxSubscribers, MaxSubscribersFlag, 100_000, "maximum number of open subscriptions on this node; on a machine with less than about 12 GiB of memory the default is lower, one per 128 KiB")
	f.IntVar(&s.PerKey, "max-subscribers-per-key", 0, "maximum number of open subscriptions of each key; 0 means no fixed limit, but when --max-subscribers is nearly reached, a key with more than an equal share of its project's subscriptions gets no more")
	f.IntVar(&s.PerProject, "max-subscribers-per-project", 0, "maximum number of open subscriptions of each project; 0 means no fixed limit, but when --max-subscribers is nearly reached, a project with more than an equal share of all subscriptions gets no more")
	f.IntVar(&s.PerAddress, "max-subscribers-per-address", 0, "maximum number of open subscriptions of each client address; 0 means unlimited")
	f.DurationVar(&s.Heartbeat, "heartbeat", 15*time.Second, "send a keep-alive comment to subscribers idle for this long")
	f.DurationVar(&s.WriteTimeout, "write-timeout", 30*time.Second, "disconnect a subscriber that accepts no data for this long")
	f.BoolVar(&s.EventLoop, "event-loop", true, "on Linux, serve plain publishes over HTTP/1.1 and HTTP/2, and subscribers over cleartext HTTP/1.1, in event loops, which takes less CPU time and memory; false serves all requests through Go's HTTP server")
	f.StringSliceVar(&s.CORSOrigins, "cors-origins", []string{"*"}, "origins from which browsers may call /v1, comma-separated")
	f.StringVar(&s.DSOpen, "ds-open", "", "name of a `project` that all clients may use through /ds without a key (default: none; /ds needs a key like /v1)")
	f.DurationVar(&s.DSLongPoll, "ds-long-poll", 20*time.Second, "how long a long poll through /ds waits for data")
	f.StringSliceVar(&s.TrustedProxies, "trusted-proxies", nil, "`addresses` or CIDRs of proxies whose X-Forwarded-For is trusted, comma-separated")
	f.StringVar(&s.Metrics, MetricsFlag, "127.0.0.1:9090", "`address` for /metrics, /healthz and /readyz; off to disable")
	f.BoolVar(&s.Profiles, "pprof", false, "also serve profiles on the address of --metrics, as /debug/pprof")
	f.DurationVar(&s.ShutdownGrace, "shutdown-grace", 10*time.Second, "time allowed for requests in flight to finish when the server stops")
	f.DurationVar(&s.ExitWhenReadOnly, "exit-when-read-only", time.Minute, "after a failed write has made the store read-only, wait at least this long and until the disk works again, then exit with an error so that a supervisor restarts the server; 0 means never exit")
	f.BoolVar(&s.CompressCold, "compress-cold", true, "compress long-lived batches when they are moved to new files; older versions of Weir cannot open the data directory afterwards")
	f.IntVar(&s.ScrubRate, "scrub-rate", 8, "rate at which stored data is read in the background to find damage, in `MiB` per second; 0 turns this scrub off")
	f.DurationVar(&s.ScrubEvery, "scrub-every", 24*time.Hour, "time between the end of a scrub and the start of the next scrub")
	f.StringVar(&s.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.LogFormat, "log-format", "", "text or json (default: text on a terminal, json elsewhere)")
}

// DataFlag adds the flag that names the data directory.
func DataFlag(f *pflag.FlagSet, data *string) {
	f.StringVar(data, "data", "./weir-data", "data `directory`, which holds everything the server stores")
}

// Load completes settings whose flags were added to f and parsed: it adds the values from the
// environment and the configuration file, and checks all values. An error names the source of the
// bad value: the flag, the variable, or the file and line. The logger that Load returns writes to
// w.
func (s *Settings) Load(f *pflag.FlagSet, w io.Writer) (*slog.Logger, error) {
	if err := s.load(f); err != nil {
		return nil, err
	}
	s.level = new(slog.LevelVar)
	s.level.Set(levelOf(s.LogLevel))
	return newLogger(w, s.level, s.LogFormat), nil
}

func (s *Settings) load(f *pflag.FlagSet) error {
	var err error
	s.flags = f
	if s.from, err = configure(f); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return s.from.named(err)
	}
	return nil
}

// Parse returns the settings that weir serve would run with if it got these arguments. Tests start
// services with it.
func Parse(args ...string) (*Settings, error) {
	s := &Settings{level: new(slog.LevelVar)}
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.Flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return s, s.load(f)
}

// IsDefault reports whether a flag has its default value because the operator did not set it. If a
// default cannot be used, for example because the address is in use, the server may do without it.
// If the operator chose the value, this is an error.
func (s *Settings) IsDefault(flag string) bool { return s.from.of(flag).kind == byDefault }

// Where returns the place where the operator set a flag, for use in errors: --gap-grace,
// WEIR_GAP_GRACE, or weir.toml:12: gap-grace.
func (s *Settings) Where(flag string) string { return s.from.of(flag).nameOf(flag) }

// must records an error unless ok is true. The text of the error starts with the flag.
type must func(ok bool, format string, a ...any)

// check refuses invalid values and combinations. Each error names the flags.
func (s *Settings) check() error {
	var all faults
	must := func(ok bool, format string, a ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, a...))
		}
	}
	must(s.Data != "", "--data: empty")
	must(s.HTTP != "off" || s.HTTPS.Address != "off", "--http off and --https off: the server would listen nowhere")
	if s.HTTP != "off" {
		_, _, err := net.SplitHostPort(s.HTTP) // an empty address is refused here, because net.Listen would listen on all interfaces
		must(err == nil, "--http %q: not HOST:PORT or off", s.HTTP)
	}
	if s.Metrics != "off" {
		_, _, err := net.SplitHostPort(s.Metrics)
		must(err == nil, "--metrics %q: not HOST:PORT or off", s.Metrics)
	}
	if s.Dashboard != DashboardOn && s.Dashboard != DashboardOff {
		_, _, err := net.SplitHostPort(s.Dashboard)
		must(err == nil, "--dashboard %q: not on, off or HOST:PORT", s.Dashboard)
	}
	s.HTTPS.check(must)
	s.Engine.check(must)
	s.checkNumbers(must)
	must(isLevel(s.LogLevel), "--log-level %q: not debug, info, warn or error", s.LogLevel)
	must(s.LogFormat == "" || s.LogFormat == "text" || s.LogFormat == "json", "--log-format %q: not text or json", s.LogFormat)
	if s.BaseURL != "" {
		u, err := url.Parse(s.BaseURL)
		must(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "--base-url %q: not an http or https address", s.BaseURL)
		if err == nil && u.Host != "" {
			_, ok := ASCIIHost(u.Hostname())
			must(ok, "--base-url %q: %q is not a host name", s.BaseURL, u.Hostname())
		}
	}
	s.Proxies = nil
	for _, p := range s.TrustedProxies {
		prefix, err := netip.ParsePrefix(p)
		if addr, bad := netip.ParseAddr(p); err != nil && bad == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		must(err == nil, "--trusted-proxies %q: not an address or CIDR", p)
		s.Proxies = append(s.Proxies, prefix)
	}
	for _, o := range s.CORSOrigins {
		must(isOrigin(o), "--cors-origins %q: not * or an origin such as https://example.com", o)
	}
	for i, k := range s.BootstrapKeys {
		project, key, _ := strings.Cut(k, ":")
		must(project != "" && !access.IsKey(project) && access.IsKey(key), "--"+bootstrapKeysFlag+
			": entry %d is not PROJECT_NAME:KEY, where KEY is "+access.KeyForm, i+1)
	}
	return all.orNil()
}

func (s *Settings) checkNumbers(must must) {
	must(s.GapGrace > 0, "--gap-grace %v: must be above 0", s.GapGrace)
	for _, l := range []struct {
		flag string
		n    int
	}{{"rate-live", s.Limits.Live}, {"rate-test", s.Limits.Test}, {"rate-demo", s.Limits.Demo}, {"rate-anonymous", s.Limits.Anonymous}} {
		must(l.n >= 0, "--%s %d: below 0", l.flag, l.n)
		must(l.n <= access.Unlimited, "--%s %d: above %d", l.flag, l.n, access.Unlimited)
	}
	must(s.StreamsPerProject > 0, "--streams-per-project %d: must be above 0", s.StreamsPerProject)
	must(s.MaxIndexMemory >= 0, "--max-index-memory %d: below 0", s.MaxIndexMemory)
	must(s.MaxSubscribers > 0, "--max-subscribers %d: must be above 0", s.MaxSubscribers)
	must(s.PerKey >= 0, "--max-subscribers-per-key %d: below 0", s.PerKey)
	must(s.PerProject >= 0, "--max-subscribers-per-project %d: below 0", s.PerProject)
	must(s.PerAddress >= 0, "--max-subscribers-per-address %d: below 0", s.PerAddress)
	must(s.Heartbeat > 0, "--heartbeat %v: must be above 0", s.Heartbeat)
	must(s.DSLongPoll > 0, "--ds-long-poll %v: must be above 0", s.DSLongPoll)
	must(s.WriteTimeout > 0, "--write-timeout %v: must be above 0", s.WriteTimeout)
	must(s.ShutdownGrace >= 0, "--shutdown-grace %v: below 0", s.ShutdownGrace)
	must(s.ExitWhenReadOnly >= 0, "--exit-when-read-only %v: below 0", s.ExitWhenReadOnly)
	must(s.ScrubRate >= 0, "--scrub-rate %d: below 0", s.ScrubRate)
	must(s.ScrubEvery > 0, "--scrub-every %v: must be above 0", s.ScrubEvery)
}

// isOrigin reports whether s is "*" or can be the Origin of a browser. A browser sends an origin
// without a path. An origin in the settings that has a path, even a single slash, would never
// match.
func isOrigin(s string) bool {
	if s == "*" || s == "null" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && s == u.Scheme+"://"+u.Host
}

// LocalURL turns a listening address into a URL that works on this machine.
func LocalURL(scheme, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return scheme + "://" + address
	}
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// WithScheme adds a scheme to an address such as 127.0.0.1:8080. For this machine the scheme is http,
// and for all others https, because a key must not be sent over a network without encryption.
func WithScheme(address string) string {
	if strings.Contains(address, "://") || address == "" {
		return address
	}
	u, err := url.Parse("//" + address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return "http://" + address
	}
	return "https://" + address
}

// FlagError improves the error of parsing flags for the user: an unknown flag comes with the name of
// a similar one, and a value that may contain an API key is removed.
func FlagError(f *pflag.FlagSet, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if best := similar(unknown.GetSpecifiedName(), f, func(f *pflag.Flag) bool { return !f.Hidden }); best != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, best)
		}
	}
	return withoutKeys(err)
}

// withoutKeys returns the error of parsing a flag. If the value of the flag may contain an API key,
// it removes the value from the error.
func withoutKeys(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok && bad.GetFlag().Name == bootstrapKeysFlag {
		return fmt.Errorf("--%s: %w", bootstrapKeysFlag, bad.Unwrap())
	}
	return err
}
