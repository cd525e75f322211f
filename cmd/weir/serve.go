package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: args(),
		Long: `Run the server. Without any flag it is a complete service on this machine, with its data in ./weir-data.

Every flag is also an environment variable (--gap-grace is WEIR_GAP_GRACE) and a key of the file that --config names
(gap-grace = "2s"). Flags win over the environment, the environment over the file; 'weir config' shows what is in effect.

SIGHUP re-reads the configuration: the log level, the rate limits and certificates change at once, the rest with the
next start.

SIGTERM and SIGINT stop it: requests in flight are finished, subscribers are told to come back, and it exits with 0.
A second signal stops it at once.`,
		Example: "  weir serve\n  weir serve --data /var/lib/weir --http 0.0.0.0:80 --https 0.0.0.0:443 --acme-domain streams.example.com --base-url https://streams.example.com",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.load(c, c.ErrOrStderr()); err != nil {
				return misuse{err, c.CommandPath()}
			}
			s.warnOfStrangers(c)
			return serve(c.Context(), s, s.logger, c.OutOrStdout())
		},
	}
	s.flags(c.Flags())
	return c
}

// ballast makes the collector wait until there is something to collect: a small live heap would otherwise be marked many
// times a second under load. It is never touched, so that it takes address space and no memory.
const ballast = 32 << 20

// serve runs the service until a signal comes, or the context ends.
func serve(ctx context.Context, s settings, logger *slog.Logger, out io.Writer) error {
	defer runtime.KeepAlive(make([]byte, ballast))
	slog.SetLogLoggerLevel(slog.LevelDebug) // what libraries print by themselves, such as quic-go about buffers
	slog.SetDefault(logger)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // from the start: by default the signal ends the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	svc, err := start(ctx, s, logger)
	if err != nil {
		return err
	}
	svc.work.Go(func() { svc.followHangups(hangups) })
	svc.welcome(out)
	notify("READY=1")
	logger.Info("ready", append(svc.addresses(), "data", s.data, "url", svc.url(), "metrics", svc.observer.address())...)
	select {
	case sig := <-signals:
		logger.Info("stopping", "signal", sig.String())
	case <-ctx.Done():
		logger.Info("stopping")
	case err := <-svc.server.Failed():
		svc.stop(s.shutdownGrace)
		return fmt.Errorf("serve: %w", err)
	}
	notify("STOPPING=1")
	go func() {
		if _, ok := <-signals; ok {
			logger.Warn("stopped at once by a second signal")
			os.Exit(exitFailed)
		}
	}()
	if err := svc.stop(s.shutdownGrace); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// newLogger writes to w, in a form for people on a terminal and for programs elsewhere.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	if format == "" {
		format = "json"
		if f, ok := w.(*os.File); ok {
			if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
				format = "text"
			}
		}
	}
	o := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// levels are what --log-level takes.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func isLevel(s string) bool {
	_, ok := levels[strings.ToLower(s)]
	return ok
}

func levelOf(s string) slog.Level { return levels[strings.ToLower(s)] }
