package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/service"
	"weir/internal/settings"
)

func serveCommand() *cobra.Command {
	var s settings.Settings
	c := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: args(),
		Long: `Run the server. Without flags it is a complete service on this machine, with its data in ./weir-data.

Every flag is also an environment variable (--gap-grace is WEIR_GAP_GRACE). Every flag but --config is also a key of the
file that --config names (gap-grace = "2s"). Flags override the environment, and the environment overrides the file.
'weir config' shows the result.

SIGHUP re-reads the configuration. The log level, the rate limits and certificates change at once, other settings at
the next start.

SIGTERM and SIGINT stop the server: it asks subscribers to reconnect, finishes requests in flight, and exits with 0.
A second signal stops it at once.`,
		Example: "  weir serve\n  weir serve --data /var/lib/weir --http 0.0.0.0:80 --https 0.0.0.0:443 --acme-domain streams.example.com --base-url https://streams.example.com",
		RunE: func(c *cobra.Command, _ []string) error {
			logger, err := loadSettings(c, &s)
			if err != nil {
				return err
			}
			return serve(c.Context(), &s, logger, c.OutOrStdout())
		},
	}
	s.Flags(c.Flags())
	completeSettings(c)
	return c
}

// loadSettings completes the settings of a command, and warns about variables that look like
// settings but are not.
func loadSettings(c *cobra.Command, s *settings.Settings) (*slog.Logger, error) {
	logger, err := s.Load(c.Flags(), c.ErrOrStderr())
	if err != nil {
		return nil, misuse{err, c.CommandPath()}
	}
	for _, name := range settings.UnknownVariables(allFlags(c.Root()), os.Environ()) {
		logger.Warn("ignoring unknown variable", "variable", name)
	}
	return logger, nil
}

// allFlags returns the names of the flags of a command and of all its subcommands.
func allFlags(c *cobra.Command) (names []string) {
	for _, f := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		f.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	for _, sub := range c.Commands() {
		names = append(names, allFlags(sub)...)
	}
	return names
}

// ballast is the size of an allocation that the server never uses. Without it, the garbage collector
// would mark a small heap many times per second under load. It needs address space but no memory.
const ballast = 32 << 20

// welcome shows the key and the password that the first start created. If the output is not a
// terminal, they might end up in a log, so welcome writes them to a file instead. If the file
// cannot be written, the operator can still create a key and set a password.
func welcome(svc *service.Service, out io.Writer, logger *slog.Logger) {
	if isTerminal(out) {
		svc.Welcome(out)
		return
	}
	if err := svc.WelcomeFile(out); err != nil {
		logger.Error("the first key and password were not shown: create a key with weir key create, and set a password with --admin-password-file", "error", err)
	}
}

// serve runs the service until a signal arrives or the context ends.
func serve(ctx context.Context, s *settings.Settings, logger *slog.Logger, out io.Writer) error {
	defer runtime.KeepAlive(make([]byte, ballast))
	slog.SetLogLoggerLevel(slog.LevelDebug) // the level of messages that libraries write with package log; quic-go writes one about buffer sizes
	slog.SetDefault(logger)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // registered before the start, because SIGHUP ends a process without a handler
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	collectMore := service.CollectLess()
	svc, err := service.StartUntil(ctx, signals, service.Options{Settings: s, Logger: logger, Commands: commandsForManual()})
	collectMore()
	if err != nil || svc == nil { // nil: a signal has ended the start
		return err
	}
	svc.FollowHangups(hangups)
	welcome(svc, out, logger)
	notify("READY=1")
	logger.Info("ready", svc.Addresses()...)
	service.ReturnStartMemory()
	select {
	case sig := <-signals:
		logger.Info("stopping", "signal", sig.String())
	case <-ctx.Done():
		logger.Info("stopping")
	case err := <-svc.Failed():
		logger.Error("stopping", "error", err) // the stop may take long
		svc.Stop(s.ShutdownGrace)
		return fmt.Errorf("serve: %w", err)
	}
	notify("STOPPING=1")
	go func() {
		if _, ok := <-signals; ok {
			logger.Warn("stopped at once by a second signal")
			os.Exit(exitFailed)
		}
	}()
	if err := svc.Stop(s.ShutdownGrace); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}
