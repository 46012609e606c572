/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/err.h"
#include "net/psk.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_loop.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_key(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
	ck_assert_int_eq(chmod(path, mode), 0);
}

#define HEX32 "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

static const struct {
	const char *text;
	mode_t mode;
	int rc;
	const char *word;
} key_file[] = {
	{HEX32 "\n", 0600, 0, NULL},
	{"  " HEX32 HEX32 " \r\n", 0400, 0, NULL},
	{HEX32, 0640, -EPERM, "chmod 600 "},
	{HEX32, 0604, -EPERM, "mode 0604"},
	{HEX32, 0620, -EPERM, "chmod 600 "},
	{"0001", 0600, -EBADMSG, "openssl rand -hex 32"},
	{HEX32 "0", 0600, -EBADMSG, "64 to 128 hex digits"},
	{HEX32 HEX32 "00", 0600, -EBADMSG, "64 to 128 hex digits"},
	{HEX32 "\n" HEX32, 0600, -EBADMSG, "hex"},
	{"", 0600, -EBADMSG, "hex"},
};

START_TEST(a_key_file_is_private_hex_or_refused_with_the_fix)
{
	struct wb_psk k = {.bytes = 7};
	struct wb_err err = {0};
	int rc;

	write_key(fx_loop_path("key"), key_file[_i].text, key_file[_i].mode);
	rc = wb_psk_read(fx_loop_path("key"), "default/llm", &k, &err);
	ck_assert_msg(rc == key_file[_i].rc, "%d: %s", rc, err.msg);
	if (rc) {
		ck_assert_msg(strstr(err.msg, key_file[_i].word) != NULL, "%s", err.msg);
		ck_assert_msg(!strstr(err.msg, "0a0b0c"), "the key is in: %s", err.msg);
		ck_assert_uint_eq(k.bytes, 7);
		return;
	}
	ck_assert_uint_eq(k.bytes, strlen(key_file[_i].text) > 100 ? 64 : 32);
	for (uint8_t i = 0; i < 32; i++)
		ck_assert_uint_eq(k.key[i], i);
	ck_assert_str_eq(k.id, "default/llm");
}
END_TEST

START_TEST(a_missing_or_foreign_key_file_says_what_to_run)
{
	struct wb_err err = {0};
	struct wb_psk k;

	ck_assert_int_eq(wb_psk_read(fx_loop_path("nokey"), "x", &k, &err), -ENOENT);
	ck_assert_msg(strstr(err.msg, "umask 077") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb_psk_read(fx_dir, "x", &k, &err) < 0, 1);
	ck_assert_int_eq(wb_psk_read(fx_loop_path("nokey"), "", &k, &err), -EINVAL);
	if (geteuid() != 0)
		return;
	write_key(fx_loop_path("key"), HEX32, 0600);
	ck_assert_int_eq(chown(fx_loop_path("key"), 1234, 1234), 0);
	ck_assert_int_eq(wb_psk_read(fx_loop_path("key"), "x", &k, &err), -EPERM);
	ck_assert_msg(strstr(err.msg, "belongs to user 1234") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(hmac_gives_the_published_value)
{
	uint8_t mac[WB_MAC_BYTES], want[WB_MAC_BYTES];

	ck_assert_int_eq(wb_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, mac), 0);
	ck_assert_int_eq(
		wb_hex_parse("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
			want, sizeof(want)),
		0);
	ck_assert(wb_bytes_equal(mac, want, sizeof(mac)));
	ck_assert_int_eq(wb_hex_parse("0g", mac, 1), -EINVAL);
	ck_assert_int_eq(wb_hex_parse("0a1", mac, 1), -EINVAL);
	ck_assert(wb_bytes_equal("ab", "ab", 2) && !wb_bytes_equal("ab", "ac", 2));
	ck_assert_int_eq(wb_random_bytes(mac, sizeof(mac)), 0);
}
END_TEST

START_TEST(a_key_is_derived_for_one_purpose_and_one_text)
{
	static const struct {
		const char *secret, *purpose, *text;
	} other[] = {{"other", "bench", "a/b"}, {"secret", "bench2", "a/b"},
		{"secret", "bench", "a/c"}, {"secret", "a/b", "bench"}};
	uint8_t a[WB_MAC_BYTES], b[WB_MAC_BYTES];

	ck_assert_int_eq(wb_derive("secret", 6, "bench", "a/b", a), 0);
	ck_assert_int_eq(wb_derive("secret", 6, "bench", "a/b", b), 0);
	ck_assert(wb_bytes_equal(a, b, sizeof(a)));
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		ck_assert_int_eq(wb_derive(other[i].secret, strlen(other[i].secret),
					 other[i].purpose, other[i].text, b),
			0);
		ck_assert(!wb_bytes_equal(a, b, sizeof(a)));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net psk");
	TCase *t = tcase_create("psk");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_loop_test(
		t, a_key_file_is_private_hex_or_refused_with_the_fix, 0, WB_ARRAY_SIZE(key_file));
	tcase_add_test(t, a_missing_or_foreign_key_file_says_what_to_run);
	tcase_add_test(t, hmac_gives_the_published_value);
	tcase_add_test(t, a_key_is_derived_for_one_purpose_and_one_text);
	suite_add_tcase(s, t);
	return fx_run(s);
}
