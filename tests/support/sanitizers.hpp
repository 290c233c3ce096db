// Which sanitizers this file was compiled with: g++ tells by macros, clang by features.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define TENSORPULL_TEST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENSORPULL_TEST_ADDRESS_SANITIZER 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define TENSORPULL_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TENSORPULL_TEST_THREAD_SANITIZER 1
#endif
#endif

#if defined(TENSORPULL_TEST_ADDRESS_SANITIZER) || defined(TENSORPULL_TEST_THREAD_SANITIZER)
#define TENSORPULL_TEST_SANITIZED 1
#endif
