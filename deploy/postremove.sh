#!/bin/sh
# Runs after the package is removed. The data in /var/lib/weir stays, unless a deb is purged: dpkg
# then deletes the configuration, and this script deletes the data and the user. rpm has no purge.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /var/lib/weir /etc/weir
	if getent passwd weir >/dev/null; then
		userdel weir
	fi
fi
