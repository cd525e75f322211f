package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/access"
)

// settings are the flags of serve. Every flag is also an environment variable (--gap-grace is WEIR_GAP_GRACE) and a key of
// the configuration file (gap-grace).
type settings struct {
	config            string
	data              string
	http              string
	https             https
	engine            engineSettings
	baseURL           string
	bootstrapKeys     []string
	passwordFile      string
	demo              bool
	gapGrace          time.Duration
	limits            access.Limits
	streamsPerProject int
	maxSubscribers    int
	heartbeat         time.Duration
	writeTimeout      time.Duration
	corsOrigins       []string
	trustedProxies    []string
	metrics           string
	shutdownGrace     time.Duration
	logLevel          string
	logFormat         string

	proxies []netip.Prefix

	given  *pflag.FlagSet // the flags themselves
	from   sources        // where each of them comes from
	level  *slog.LevelVar // what logger logs
	logger *slog.Logger
}

const (
	defaultData   = "./weir-data"
	bootstrapKeys = "bootstrap-keys" // the flag whose value nobody repeats
)

func (s *settings) flags(f *pflag.FlagSet) {
	f.StringVar(&s.config, configFlag, "", "TOML `file` with the same settings, by the names of the flags")
	dataFlag(f, &s.data)
	f.StringVar(&s.http, "http", "127.0.0.1:8080", "`address` for HTTP/1.1 and cleartext HTTP/2 (prior knowledge); off to disable")
	s.https.flags(f)
	s.engine.flags(f)
	f.StringVar(&s.baseURL, "base-url", "", "`URL` that doc_url and printed links start with (default: from --http, or --https when that is off)")
	f.StringSliceVar(&s.bootstrapKeys, bootstrapKeys, nil, "`PROJECT_NAME:KEY`, comma-separated; each project and key that does not exist yet is created at start")
	passwordFlag(f, &s.passwordFile)
	f.BoolVar(&s.demo, "demo", true, "the demo project and stream")
	f.DurationVar(&s.gapGrace, "gap-grace", 2*time.Second, "how long a missing sequence below the cursor can still be filled")
	f.IntVar(&s.limits.Live, "rate-live", 600_000, "requests per minute of each live key; 0 is unlimited")
	f.IntVar(&s.limits.Test, "rate-test", 6_000, "requests per minute of each test key; 0 is unlimited")
	f.IntVar(&s.limits.Demo, "rate-demo", 60, "requests per minute and client address for the demo; 0 is unlimited")
	f.IntVar(&s.limits.Anonymous, "rate-anonymous", 6_000, "requests per minute and client address without a valid key; 0 is unlimited")
	f.IntVar(&s.streamsPerProject, "streams-per-project", 10_000, "how many streams a project may have")
	f.IntVar(&s.maxSubscribers, "max-subscribers", 100_000, "open subscriptions on this node; more are refused")
	f.DurationVar(&s.heartbeat, "heartbeat", 15*time.Second, "a comment is sent to subscribers that got nothing for so long")
	f.DurationVar(&s.writeTimeout, "write-timeout", 30*time.Second, "a subscriber that takes nothing for so long is disconnected")
	f.StringSliceVar(&s.corsOrigins, "cors-origins", []string{"*"}, "origins that browsers may call /v1 from, comma-separated")
	f.StringSliceVar(&s.trustedProxies, "trusted-proxies", nil, "`CIDRs` of proxies whose X-Forwarded-For counts, comma-separated")
	f.StringVar(&s.metrics, "metrics", "127.0.0.1:9090", "`address` for /metrics, /healthz, /readyz and /debug/pprof; off to disable")
	f.DurationVar(&s.shutdownGrace, "shutdown-grace", 10*time.Second, "how long requests in flight may take when the server stops")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "", "text or json (default: text on a terminal, json elsewhere)")
}

func dataFlag(f *pflag.FlagSet, data *string) {
	f.StringVar(data, "data", defaultData, "`directory` of everything the server keeps")
}

// environment sets the flags that were not given from WEIR_* variables.
func environment(c *cobra.Command) error {
	var faults []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		v, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" {
			return
		}
		if err := c.Flags().Set(f.Name, v); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, withoutKeys(err)))
		}
	})
	return oneLine(faults)
}

// variable is the environment variable of a flag.
func variable(f *pflag.Flag) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// withoutKeys is an error of a flag that does not repeat keys.
func withoutKeys(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok && bad.GetFlag().Name == bootstrapKeys {
		return fmt.Errorf("--%s: %w", bootstrapKeys, bad.Unwrap())
	}
	return err
}

// oneLine is all faults in one message.
func oneLine(all []error) error {
	if len(all) == 0 {
		return nil
	}
	return faults(all)
}

// load takes the settings from flags, environment and file, and refuses what cannot be by the name of its source. The
// logger writes to w.
func (s *settings) load(c *cobra.Command, w io.Writer) error {
	var err error
	s.given = c.Flags()
	if s.from, err = configure(c); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return s.from.named(err)
	}
	s.https.chosen = s.from.of(httpsFlag).kind != byDefault
	s.level = new(slog.LevelVar)
	s.level.Set(levelOf(s.logLevel))
	s.logger = newLogger(w, s.level, s.logFormat)
	return nil
}

// check refuses what cannot be, and names the flag.
func (s *settings) check() error {
	var faults []error
	must := func(ok bool, format string, a ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, a...))
		}
	}
	must(s.data != "", "--data: empty")
	must(s.http != "off" || s.https.address != "off", "--http off and --https off: nothing would be served")
	if s.http != "off" {
		_, _, err := net.SplitHostPort(s.http) // of an empty address net.Listen makes one that is open to everybody
		must(err == nil, "--http %q: not HOST:PORT", s.http)
	}
	if s.metrics != "off" {
		_, _, err := net.SplitHostPort(s.metrics)
		must(err == nil, "--metrics %q: not HOST:PORT or off", s.metrics)
	}
	s.https.check(must)
	s.engine.check(must)
	must(s.gapGrace > 0, "--gap-grace %v: not above 0", s.gapGrace)
	must(s.limits.Live >= 0, "--rate-live %d: below 0", s.limits.Live)
	must(s.limits.Live <= access.Unlimited, "--rate-live %d: above %d", s.limits.Live, access.Unlimited)
	must(s.limits.Test >= 0, "--rate-test %d: below 0", s.limits.Test)
	must(s.limits.Test <= access.Unlimited, "--rate-test %d: above %d", s.limits.Test, access.Unlimited)
	must(s.limits.Demo >= 0, "--rate-demo %d: below 0", s.limits.Demo)
	must(s.limits.Demo <= access.Unlimited, "--rate-demo %d: above %d", s.limits.Demo, access.Unlimited)
	must(s.limits.Anonymous >= 0, "--rate-anonymous %d: below 0", s.limits.Anonymous)
	must(s.limits.Anonymous <= access.Unlimited, "--rate-anonymous %d: above %d", s.limits.Anonymous, access.Unlimited)
	must(s.streamsPerProject > 0, "--streams-per-project %d: not above 0", s.streamsPerProject)
	must(s.maxSubscribers > 0, "--max-subscribers %d: not above 0", s.maxSubscribers)
	must(s.heartbeat > 0, "--heartbeat %v: not above 0", s.heartbeat)
	must(s.writeTimeout > 0, "--write-timeout %v: not above 0", s.writeTimeout)
	must(s.shutdownGrace >= 0, "--shutdown-grace %v: below 0", s.shutdownGrace)
	must(isLevel(s.logLevel), "--log-level %q: not debug, info, warn or error", s.logLevel)
	must(s.logFormat == "" || s.logFormat == "text" || s.logFormat == "json", "--log-format %q: not text or json", s.logFormat)
	if s.baseURL != "" {
		u, err := url.Parse(s.baseURL)
		must(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "--base-url %q: not a http or https address", s.baseURL)
		if err == nil && u.Host != "" {
			_, ok := asciiHost(u.Hostname())
			must(ok, "--base-url %q: %q is no host name", s.baseURL, u.Hostname())
		}
	}
	for _, p := range s.trustedProxies {
		prefix, err := netip.ParsePrefix(p)
		if addr, bad := netip.ParseAddr(p); err != nil && bad == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		must(err == nil, "--trusted-proxies %q: not an address or CIDR", p)
		s.proxies = append(s.proxies, prefix)
	}
	for _, o := range s.corsOrigins {
		must(isOrigin(o), "--cors-origins %q: not * or an origin such as https://example.com", o)
	}
	for i, k := range s.bootstrapKeys {
		project, key, _ := strings.Cut(k, ":")
		must(project != "" && !access.IsKey(project) && access.IsKey(key), "--"+bootstrapKeys+
			": entry %d is not PROJECT_NAME:KEY, with a key of svc_live_ or svc_test_ and 32 lower case hexadecimal digits", i+1)
	}
	return oneLine(faults)
}

// isOrigin tells whether a browser could send s as its Origin, or s is "*". A path, even a lone slash, never matches.
func isOrigin(s string) bool {
	if s == "*" || s == "null" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && s == u.Scheme+"://"+u.Host
}
