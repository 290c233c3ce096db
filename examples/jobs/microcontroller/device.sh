# Sourced by jobs in which the microcontroller takes part. Needs their function fail.
#   start_device starts $firmware in QEMU, with the digits of $data that are its own by $seed, for $rounds rounds; $built has the programs, $work is a temporary folder.
#   Sets $device, its process, $transcript, what writes down what it says, and $line, the server's end of its serial line. $work/device has what it says, and $work/emulator what QEMU does. $flash: the file that is its flash, or nothing. $key: the file of the key whose signed references it takes, or nothing.

# The line is a pseudo-terminal that QEMU makes, and names in its first words. The device speaks on its other UART.
start_device() {
  "$built/microcontroller_digits" "$data" "$seed" "$work/digits"
  local qemu=(qemu-system-arm -M lm3s6965evb -display none -monitor none -kernel "$firmware" -append "|$flash|$rounds|${key:-}"
    -device "loader,file=${work//,/,,}/digits,addr=0x10000,force-raw=on" -semihosting-config enable=on,target=native
    -chardev pty,id=line -serial chardev:line -serial stdio)
  mkfifo "$work/said"
  "${qemu[@]}" </dev/null >"$work/said" 2>"$work/emulator" &
  device=$!
  exec 3<"$work/said"
  local words
  read -r words <&3 || { cat "$work/emulator" >&2; fail "the emulator did not start"; }
  line=$(grep -o '/dev/[^ ]*' <<<"$words") || fail "the emulator has no pseudo-terminal: $words"
  tee "$work/device" <&3 &
  transcript=$!
}
